"""What is run by hand, at night, and when a release is made."""
