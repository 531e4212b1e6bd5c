"""Asks one process or many, and brings the answers to the terminal."""
