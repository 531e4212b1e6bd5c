"""How a process is reached: endpoints, transports, trust in a server, what to do without one."""
