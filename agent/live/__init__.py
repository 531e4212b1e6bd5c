"""Answers that are made when they are asked for."""
