"""Messages, settings, run folders and texts."""
