"""`probing web`: a server of its own on this machine, that asks processes as the commands do."""
