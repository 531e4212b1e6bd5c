"""What modules are called."""
