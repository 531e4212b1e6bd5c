"""A training under questions for a long time: `python -m tests.soak`."""
