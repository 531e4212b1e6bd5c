"""Backward passes, and the part that each module has in them."""
