"""Rules and formats of memory, from figures made by hand."""
