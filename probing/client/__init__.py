"""What asks a process: the public `Process`, by its files, over HTTP, or without an agent."""
