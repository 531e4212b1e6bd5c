"""The tests; `python -m tests.benchmarks` measures."""
