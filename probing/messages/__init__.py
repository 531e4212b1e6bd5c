"""What travels between processes: routes, bodies, limits, and how they are encoded."""
