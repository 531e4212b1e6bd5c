"""What actions act on: the model, its blocks, the optimizers, and the state to save."""
