"""What runs inside the target process.

Reading order: `lifecycle` starts and stops it all; `recorder` writes the rings; `sources/`
turn what torch does into rows; `listener` waits for the first question and `server` answers;
`evaluation` and `safe_points` run code that was sent, while training is held.
"""
