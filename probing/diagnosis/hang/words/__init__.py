"""The sentences of verdicts, and what to do about them."""
