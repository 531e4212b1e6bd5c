"""Real jobs of several ranks."""
