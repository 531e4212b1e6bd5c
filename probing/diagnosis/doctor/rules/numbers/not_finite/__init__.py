"""Where values are not finite: which are the first, and losses of a step that does not end."""
