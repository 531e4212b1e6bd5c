"""How the calls of collectives are caught: in Python, and in torch's dispatcher."""
