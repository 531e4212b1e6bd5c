"""Commands as processes, against real trainings."""
