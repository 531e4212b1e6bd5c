"""What others add to the record: the tables of the script, and those of plugins."""
