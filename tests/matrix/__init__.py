"""Every state a process can be in, asked everything: ``python -m tests.matrix [PYTHON ...]``."""
