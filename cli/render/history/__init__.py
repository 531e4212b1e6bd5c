"""What of runs is kept, and which there are."""
