"""Where values are not finite, or about to be: the first, those of a step that does not end."""
