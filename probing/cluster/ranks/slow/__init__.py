"""Which ranks hold up a job: what each spent its time on, beside those that do the same."""
