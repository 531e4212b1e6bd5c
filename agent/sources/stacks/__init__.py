"""Stacks of the process's own threads.

Rules of this package: as those of `sources`.
"""
