"""A server of Arrow Flight SQL: what notebooks, dashboards and JDBC ask by SQL, live and kept.

Rules of this folder: it runs in a process of its own, never in a training, for gRPC is in it. SQL
runs in helpers of that process, one for each statement, so that a statement that kills one is one
client's error. Nothing is written: every statement passes the gate of `probing.sql`.
"""
