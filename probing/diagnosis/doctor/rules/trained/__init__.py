"""Rules about what trains each parameter: an optimizer, and a wrapper that averages gradients."""
