"""What differs between two runs of a script, and what most likely explains it.

Rules of this package: runs at the operator's side, on what is on record alone; nothing is asked of
the training. Truth over completeness: what was seen of one run only is no difference, and what one
run differs in from itself is none between two.
"""
