"""Memory from phase to phase: of the process, its cgroup, the machine and its devices.

Rules of this package: as those of `sources`.
"""
