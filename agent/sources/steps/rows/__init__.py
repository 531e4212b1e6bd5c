"""Writes the rows of steps, micro-batches and optimizer steps, with the numbers that come late."""
