"""What keeps the agent from harming its process, and what we start from staying behind."""
