"""The HTTP server that the agent and the node server share, with its checks of tokens."""
