"""Rules that compare the ranks of a job, and why one of them is slow."""
