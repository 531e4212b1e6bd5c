"""A record as Arrow columns by the C part alone: neither numpy nor pyarrow is loaded."""
