"""Commands that look again and again, and tell others what begins and what ends."""
