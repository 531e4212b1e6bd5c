"""Rules about the pace of steps, and what explains that it has changed.

Rules of this room: as of `doctor.rules`.
"""
