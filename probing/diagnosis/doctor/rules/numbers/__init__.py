"""Rules about what a training computes: losses, gradients, weights, and how they are learned."""
