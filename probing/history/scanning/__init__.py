"""Where a query finds the files of a history: in a folder, or in an object store.

`source` says what it asks of either.
"""
