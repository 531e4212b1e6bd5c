"""Runs that are kept as files, and asked after they are gone."""
