"""What the graph of a loss shows of how it was computed, as a backward pass begins.

Rules of this room: names, shapes and plain numbers of nodes are read, and no tensor.
"""
