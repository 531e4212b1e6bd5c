"""Answers to text: pure functions, no printing, no look at the terminal."""
