"""What travels about each subject: actions, evals, labels, stacks, and so on.

Rules of this room: as in `probing.messages.common`.
"""
