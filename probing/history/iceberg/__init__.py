"""The tables of a history as Iceberg tables, over the same Parquet files.

`committing` is what `probing history iceberg` does, `files` says which files a table should have
and what Iceberg wants to know of each, `catalog` where its tables are. Rules of this package: what
Iceberg has is made of the folder, each time anew, and never the other way round; so one can lose
it and make it again. One commit for each table; pyiceberg is imported here alone.
"""
