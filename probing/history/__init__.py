"""Every run, kept as Parquet files in a place that outlives the machines they ran on.

`export` copies what rings hold into the folder, `query` asks it by SQL. Rules of this package: runs
at the operator's side, reads rings as anybody does and asks nothing of a process. `layout` says
where everything lies in the folder, `books` which rows are in it. A file of rows becomes visible by
one rename, and says itself which rows are in the folder from then on: whoever is killed at any
moment leaves no row out and none twice. An object store has neither locks nor a rename: see
`stores`.
"""
