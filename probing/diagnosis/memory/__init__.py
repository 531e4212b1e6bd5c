"""Where memory is, what it would take, and what can be had back."""
