"""The live screen: what has the terminal, what looks, what is shown."""
