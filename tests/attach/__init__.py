"""How the agent gets into a process and out of it."""
