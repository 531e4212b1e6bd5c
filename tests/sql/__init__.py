"""SQL of remote clients, and the worker that runs it."""
