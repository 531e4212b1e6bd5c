"""Quantities as people write them.

Rules of this file: pure functions; the one place that turns bytes and seconds into words.
"""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(amount: float) -> str:
    """Bytes as people say them: `1.50 GiB`."""
    number, unit = float(amount), 0
    while abs(number) >= (999.5 if unit else 1024) and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} bytes" if unit == 0 else f"{number:.3g} {_UNITS[unit]}"
