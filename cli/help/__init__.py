"""What is written about the commands: examples, manual pages, what programs may rely on."""
