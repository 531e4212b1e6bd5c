"""The agent as a server: who gets an answer, and what nobody can do to it."""
