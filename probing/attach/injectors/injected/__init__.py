"""What runs inside the process that is attached to, as text."""
