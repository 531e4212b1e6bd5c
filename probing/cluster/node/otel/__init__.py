"""What a node server sends to a receiver of OpenTelemetry: figures, and a span for each step.

Rules of this package: nothing of it runs in a training. All comes from the records, which are the
queue as well: what a receiver did not take is read again from the ring later, so that a dead one
costs no memory. The official SDK has the data model and the protocol; it is imported here alone.
"""
