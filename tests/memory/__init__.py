"""Where the memory of real trainings is, and what runs out of it."""
