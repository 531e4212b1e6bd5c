"""Which event ends a training step: whose optimizer, which model, or the script by hand."""
