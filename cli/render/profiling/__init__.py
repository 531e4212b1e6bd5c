"""Profiles: tables, and files for the tools that draw them."""
