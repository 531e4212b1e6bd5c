"""One process: its card, its stacks, its evals, what was done to it."""
