"""Collectives, messages between ranks and process groups, as this rank sees them.

A call from Python is seen where all of them meet: at the methods of ``ProcessGroup``, below the
functions of ``torch.distributed``, so that names imported earlier are seen, too, and torch.compile
finds the functions that it knows. What torch calls from C++ (the reducer of
DistributedDataParallel, and every functional collective: those of DTensor, tensor parallelism and
compiled code) is seen by kernels of our own in torch's dispatcher, which are put there once such a
caller is expected or has been met: the operators of functional collectives have one each that
costs nothing before the first call and has the others put there then. Not seen are groups of a
Python subclass of ``ProcessGroup`` that answers a method itself, and barriers over a store.
"""
