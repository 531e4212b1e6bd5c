"""Saved questions: SQL with a name, asked as ``query @name``."""
