"""Many small files of a history put together, and what is old removed.

`compact` is what `probing history compact` does and in which order, `folder` where that is a folder
(`history.stores` has the other), `merge` makes one file of several, `roll_up` one row of several,
`keep` removes what is too old or too much. Rules of this package: one process at a time does it in
a history, and an export may go on meanwhile, for only files are touched that no export will look at
again: files of rows that the state of their process counts already, and what is told of processes
that are kept to their last row.
"""
