"""Rules about what trains each parameter: an optimizer, its updates, wrappers around the model."""
