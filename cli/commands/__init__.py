"""The commands, one file each: parse, ask, render."""
