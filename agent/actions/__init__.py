"""Changes that an operator asks for, made between two steps."""
