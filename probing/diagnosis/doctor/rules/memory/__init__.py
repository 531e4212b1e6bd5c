"""Rules about memory: of the process, of its data workers, and who keeps what grows."""
