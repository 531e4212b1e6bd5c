"""Looks at many tensors, in a limited time.

Rules of this package: what no module, optimizer, graph or variable holds is listed here.
"""
