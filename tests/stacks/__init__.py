"""Stacks and states of real processes."""
