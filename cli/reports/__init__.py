"""Reports that are put together from several answers."""
