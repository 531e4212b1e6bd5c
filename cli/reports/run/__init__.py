"""What a report of a run in one file is made of."""
