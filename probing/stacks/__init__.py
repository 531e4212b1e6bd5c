"""Stacks as text, what threads wait for, and py-spy."""
