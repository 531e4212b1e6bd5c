"""What grows in a training's memory, and which mistake that is.

Rules of this package: pure functions of figures and rows; standard library only.
"""
