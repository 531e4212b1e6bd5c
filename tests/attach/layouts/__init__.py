"""Derives the offsets of `probing.attach.injectors.layouts` from the headers of each Python.

Run ``python -m tests.attach.layouts [PYTHON ...]`` from the root of the source tree.
"""
