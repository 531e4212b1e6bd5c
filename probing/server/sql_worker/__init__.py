"""The process that runs remote queries, and how the agent keeps it."""
