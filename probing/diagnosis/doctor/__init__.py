"""From what is on record and live to what is wrong, how sure that is, and what to do.

Rules of this package: runs at the operator's side. Each rule is one record in the file of its
subject; what a rule needs is asked once, by `facts`; nothing is changed in the process, and the
training is held no longer than by one `memory`.
"""
