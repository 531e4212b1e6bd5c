"""Memory: where it is, what grew, what will fit, who holds it."""
