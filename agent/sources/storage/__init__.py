"""Every storage of memory that tensors hold, and what it is used for.

Rules of this package: looks at live tensors only while the training is held; reads no data, runs
no code of any object.
"""
