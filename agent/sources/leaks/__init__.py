"""What came in some steps and never went, and who refers to it.

Rules of this package: loaded when somebody asks; nothing that it met stays referenced.
"""
