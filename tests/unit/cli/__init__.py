"""What words on the command line mean, and what is drawn."""
