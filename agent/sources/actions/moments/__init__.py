"""When actions are applied: between two steps, and at the same one on all ranks."""
