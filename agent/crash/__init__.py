"""What a process leaves behind when it ends."""
