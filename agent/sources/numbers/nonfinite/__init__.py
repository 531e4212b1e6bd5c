"""The first values that are not finite: which module made them, forwards or backwards."""
