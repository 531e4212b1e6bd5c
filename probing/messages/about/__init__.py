"""What travels about each subject: actions, evals, labels, stacks, and so on."""
