"""The node server: one process beside the trainings of a machine, that answers for all of them.

Rules of this package: runs in a process of its own, started as ``python -m probing.cluster.node``
by `probing serve` or by the first agent of a machine; nothing of it is imported by an agent or by
the terminal. What a process has recorded is read from its files; what only it can tell is asked of
its agent over its unix socket. One that hangs, is stopped or has ended is answered for.
"""
