"""Answers of many ranks, and verdicts about them."""
