"""Histories in object stores, such as `s3://bucket/prefix`.

A store has no rename and no lock, and may be away for a while. So an export goes into a folder on a
disk of this machine first, the spool, as it goes into any history, and what is whole there is
copied. `objects` is what a store can do, `holding` how one of several comes to be alone, `spool`
the way of the rows, `naming` which run a rank belongs to, `compaction` few files of many.
"""
