"""A statement over the tables of many ranks: taken apart, and planned in two steps."""
