"""What probing costs and how fast it answers, each measured beside what it is compared with.

    python -m tests.benchmarks [NAME ...] [--effort 0.1] [--json FILE] [--markdown] [--check]

The exit code is 0 when all of them ran. What missed its limit is named at the end; with `--check`
it is 1 then. A figure taken on a busy machine says little, so nothing checks by itself.

Rules of this folder: each module with a `measure` is one benchmark; what it needs in a process of
its own is a program of ``programs/``, which imports no more than it measures. Two things that
are compared are measured in turn in the same run, and what is shown is the median of the pairs.
A limit here is one of the design; a figure without one is a reference, which tells a slow or busy
machine from slow code.
"""
