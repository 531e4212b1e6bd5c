"""Calls of modules and their backward passes: the hot path, and the budget that it keeps to.

Rules of this package: as those of `sources`.
"""
