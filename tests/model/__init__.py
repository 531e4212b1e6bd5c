"""What is told of models, optimizers, data and numbers of real trainings."""
