"""What the model is: modules, parameters, arithmetic, names.

Rules of this package: as those of `sources`.
"""
