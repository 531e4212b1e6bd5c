"""What a training works on: its model, its data, its numbers."""
