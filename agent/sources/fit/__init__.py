"""A training step in another shape, simulated without data.

Rules of this package: loaded when somebody asks; works on a copy, and changes nothing that is live.
"""
