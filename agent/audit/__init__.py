"""Who asked what, and what was changed."""
