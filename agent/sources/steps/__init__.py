"""Steps, and what they are made of: phases, losses, optimizers, marks of the script.

Rules of this package: as those of `sources`.
"""
