"""Batches: the loaders that they come from, what they are, and their labels.

Rules of this package: as those of `sources`.
"""
