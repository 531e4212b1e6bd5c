"""What keeps the agent from harming the process that it is in: faults, forks, descriptors."""
