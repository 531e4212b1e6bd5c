"""Runs code that an operator sends."""
