"""What a program gets by `probing.connect`: a process with all that the command line has."""
