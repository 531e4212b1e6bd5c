"""What the doctor judges and asks first, and what only where time is left."""
