"""Trainings as people write them, and what is told of each beside what it knows of itself."""
