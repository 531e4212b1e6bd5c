"""Small real trainings, most of them with one fault, and what a person would say of each."""
