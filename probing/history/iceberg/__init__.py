"""The tables of a history as Iceberg tables, over the same Parquet files.

`committing` is what `probing history iceberg` does, `files` says what Iceberg wants to know of each
file, `catalog` where its tables are, `places` where the history is: in a folder, or in a store.
Rules of this package: what Iceberg has is made of the files of the history, each time anew, and
never the other way round; so one can lose it and make it again. pyiceberg is imported here alone.
"""
