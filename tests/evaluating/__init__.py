"""Code and actions in running trainings."""
