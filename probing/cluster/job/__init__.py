"""The ranks of a job: finding them, and asking them all at once.

Rules of this package: runs at the operator's side or in a node server, never in a training process.
What is found is told as it is: an expected rank that is nowhere is a row, not an exception.
"""
