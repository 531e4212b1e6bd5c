"""Who refers to what, by names that a person knows."""
