"""What tests of all folders share: real processes, warm or cold, that are always reaped."""
