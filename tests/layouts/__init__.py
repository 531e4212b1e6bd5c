"""Derives the offsets of `probing.injection.layouts` from the headers of each Python.

Run ``python -m tests.layouts [PYTHON ...]`` from the root of the source tree.
"""
