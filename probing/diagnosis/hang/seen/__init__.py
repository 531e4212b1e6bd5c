"""What is seen of the ranks of a job: their records, stacks, ends, and what the kernel counts."""
