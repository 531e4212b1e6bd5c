"""What the script writes to disk of its state.

Rules of this package: as of all sources; nothing of what is written is kept.
"""
