"""Programs that benchmarks run in processes of their own.

Rules of this folder: a program takes one JSON object as its argument and prints one as its last
line. It imports nothing that the process it stands for would not have imported.
"""
