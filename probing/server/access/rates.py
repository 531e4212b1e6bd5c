"""How often each sender may ask.

Rules of this file: no I/O and no clock of its own. Every sender has a bucket of tokens, one for a
request, that fills at a steady rate: a sender that asks without a pause is refused, and nobody else
is. Buckets that are full again are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

Peer = int | str
"""A process on this machine, or the address of another one."""

_MOST_SENDERS = 1024


class Rates:
    """The buckets of all senders.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[Peer, tuple[float, float]] = {}

    def take(self, sender: Peer, per_s: float) -> bool:
        """Take a token; False when there is none.

        Args:
            per_s: How many come in each second, and how many a bucket holds.
        """
        now = self._clock()
        if sender not in self._buckets and len(self._buckets) >= _MOST_SENDERS:
            self._forget(now)
        tokens, filled = self._buckets.pop(sender, (per_s, now))
        tokens = min(per_s, tokens + (now - filled) * per_s)
        has_one = tokens >= 1
        self._buckets[sender] = (tokens - has_one, now)
        return has_one

    def _forget(self, now: float) -> None:
        """Forget those who have not asked for a second, whose buckets are full; else the oldest."""
        old = [sender for sender, (_, filled) in self._buckets.items() if now - filled >= 1]
        for sender in old or list(self._buckets)[:1]:
            del self._buckets[sender]
