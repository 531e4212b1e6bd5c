"""What the training survives, and what is left when it does not."""
