"""What the ranks of a job have in common, and what sets one apart.

Rules of this package: runs at the operator's side. All but `gathering` is pure: it takes what the
ranks have told, asks nobody and reads no clock. The odd ones come first: who reads it looks for
the rank to blame. A rank that has told nothing is named, and counted nowhere.
"""
