"""Every allocation of some steps.

Rules of this package: loaded when somebody asks; off, it leaves nothing behind.
"""
