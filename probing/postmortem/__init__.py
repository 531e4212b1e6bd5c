"""How a process ended, and what it last knew."""
