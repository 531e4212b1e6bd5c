"""The command line: what runs at the operator's terminal."""
