"""Where answers go: the terminal, the pager, a file, and in which format."""
