"""Where the processes of a job are learned from, each source in a file of its own.

    this_machine      the run directory
    shared_directory  a folder that all machines of a job see
    hostfile          a list of hosts, as MPI launchers take them
    job_store         the store of a torchrun job
    slurm             the nodes of an allocation
    named_hosts       the addresses behind a DNS name, as of a headless service
    ray_cluster       the nodes of a Ray cluster
    addresses         what listens at host:port: an agent, or a node server

Rules of this package: a provider gives members, or host:port to be asked by `addresses`; it raises
a `ProbingError` where it cannot. Tried in this order, see `probing.cluster.job.plans`.
"""
