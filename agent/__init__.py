"""What runs inside the target process.

Reading order: `lifecycle` starts and stops it all, around the `state` that it holds; `training`
records, by `sources/` that turn what torch does into rows and a `recorder` that writes them;
`listener` waits for the first question and `server` answers, by `handlers`; `evaluation` and
`safe_points` run code that was sent while training is held; `worker` has SQL run elsewhere.
"""
