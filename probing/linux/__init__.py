"""What the kernel tells of a process: `/proc`, cgroups, system calls, file systems, users."""
