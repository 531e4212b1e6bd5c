"""Puts an agent into a process that runs."""
