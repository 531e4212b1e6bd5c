"""What the agent records of real trainings."""
