"""Out-of-memory errors, written down before they reach the script.

Rules of this package: without an error it costs nothing; the error goes on unchanged.
"""
