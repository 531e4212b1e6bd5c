"""What only a device can show: `scripts/gpu`.

Needs nothing but this tree and a Python with torch for CUDA. Each check is a process of its own, so
that one that dies, hangs or breaks the device costs no other; the table says what became of each.
With ``--fake`` all of it runs on a made-up CUDA: that shows that the checks run, and nothing of a
device.
"""
