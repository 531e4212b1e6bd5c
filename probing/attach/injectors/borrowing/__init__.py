"""How a thread of another process is borrowed: stopped, sent on an errand, and put back."""
