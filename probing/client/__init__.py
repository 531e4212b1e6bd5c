"""A process as its operator sees it, with or without an agent."""
