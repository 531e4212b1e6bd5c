"""The SQL engine and the plans of statements over ranks, in this process."""
