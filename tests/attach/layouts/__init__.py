"""Derives the offsets of `probing.injection.layouts` from the headers of each Python.

Run ``python -m tests.attach.layouts [PYTHON ...]`` from the root of the source tree.
"""
