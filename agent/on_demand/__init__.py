"""What runs for a while because somebody asked: profiles, watches, fits, allocation records."""
