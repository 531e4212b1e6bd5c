"""Quantities as people write them.

Rules of this file: pure functions; the one place that turns bytes and seconds into words. What is
not known, or no number, is a dash.
"""

from __future__ import annotations

import math

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = (("ns", 1e9), ("us", 1e6), ("ms", 1e3))
_LONG_TIMES = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (math.inf, 86_400, "d"))
_LARGE, _SMALL = 1e9, 1e-4
"""Numbers in between are written in full."""
_UNKNOWN = "-"


def size(amount: float | None) -> str:
    """Bytes: `12 B`, `1.50 GiB`, `171.2 MiB`."""
    if amount is None or not math.isfinite(amount):
        return _UNKNOWN
    number, unit = float(amount), 0
    while abs(number) >= (1023.95 if unit else 1023.5) and unit < len(_SIZES) - 1:
        number, unit = number / 1024, unit + 1
    if unit == 0:
        return (
            f"{number:.0f} B" if number.is_integer() or abs(number) >= 99.5 else f"{number:.2g} B"
        )
    return f"{number:,.{2 if abs(number) < 9.995 else 1}f} {_SIZES[unit]}"


def size_change(amount: float) -> str:
    """Bytes with their sign: `+1.50 GiB`, `-12 B`; `0 B` where nothing changed."""
    return f"+{size(amount)}" if amount > 0 else size(amount)


def figure(value: float | None, digits: int = 4) -> str:
    """A number of any kind: `69,550`, `2.317`, `3.2e-7`."""
    if value is None:
        return _UNKNOWN
    length = abs(value)
    if not math.isfinite(value):
        return f"{value:g}"
    if length >= _LARGE or 0 < length < _SMALL:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    if length >= 1000:
        return f"{value:,.0f}"
    rounded = float(f"{value:.{digits}g}")
    is_whole = abs(rounded) >= 10 ** min(digits, 3)
    return f"{rounded:,.0f}" if is_whole else f"{rounded:.{digits}g}"


def percent(share: float | None, *, digits: int = 1) -> str:
    """A share: `12.5 %`, `<0.1 %` where the digits would show nothing, `0.0 %` for none."""
    if share is None or not math.isfinite(share):
        return _UNKNOWN
    text = f"{100 * share:.{digits}f}"
    if share > 0 and not float(text):
        return f"<{10.0**-digits:g} %"
    return f"{'0' if not float(text) and not digits else text.replace('-0.0', '0.0')} %"


def percent_change(share: float) -> str:
    """A relative change with its sign: `+1.2 %`, `-3.0 %`; `0.0 %` where none shows."""
    text = f"{100 * share:+.1f}"
    return f"{text if float(text) else '0.0'} %"


def duration(seconds: float | None) -> str:
    """A measured length of time, three digits of it: `750 us`, `12.3 s`; a long one as `age`."""
    if seconds is None or not math.isfinite(seconds):
        return _UNKNOWN
    length = abs(seconds)
    if length < 5e-10:
        return "0 s"
    for unit, per_second in _TIMES:
        if length * per_second < 999.5:
            return f"{seconds * per_second:.3g} {unit}"
    return f"{seconds:.3g} s" if length < _LONG_TIMES[0][0] else _long_time(seconds)


def age(seconds: float | None) -> str:
    """How long ago something was, or lasts: `0.4 s`, `12 s`, `3 min`; never negative."""
    if seconds is None or not math.isfinite(seconds):
        return _UNKNOWN
    seconds = max(0.0, seconds)
    return f"{seconds:.1f} s" if seconds < 9.95 else _long_time(seconds)


def _long_time(seconds: float) -> str:
    """A length of time in the largest unit that keeps two digits."""
    _, one_s, unit = next(each for each in _LONG_TIMES if abs(seconds) < each[0])
    return f"{seconds / one_s:.0f} {unit}"
