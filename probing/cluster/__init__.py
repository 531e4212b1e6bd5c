"""Many processes: launchers, jobs, node servers, SQL over all ranks."""
