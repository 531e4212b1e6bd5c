"""What recorded sources share: rings and names, who is who in the process, events of its steps."""
