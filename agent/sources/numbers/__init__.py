"""Numbers of the training: norms of gradients, values that are not finite, sums.

Rules of this package: as those of `sources`.
"""
