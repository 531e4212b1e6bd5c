"""Which requests a server answers: who asks, with which token, and how often."""
