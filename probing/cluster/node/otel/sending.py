"""Sends what is wanted, again and again, each kind by a thread of its own.

Rules of this file: a receiver that is slow, dead or refuses costs its thread's time and nothing
else. That is told once, and once that it is over; the SDK's own words, which come with each try,
are kept back.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from .data import metrics_data
from .resources import Resources
from .spans import Steps
from .wanted import Signal, Wanted

if TYPE_CHECKING:
    from ..figures import Figures
    from ..roster import Roster

_CONNECT_S = 2.0
_LAST_S = 2.0
"""How long the end of the server waits for what is still to be sent."""
_LONGEST = 200
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@|\?.*")
Tell = Callable[[str], None]


class Sender:
    """Everything that is sent.

    Args:
        tell: Called with a sentence for the user, from any thread.
    """

    def __init__(self, wanted: Wanted, roster: Roster, figures: Figures, tell: Tell) -> None:
        words = _Words()
        self._loops: list[_Loop] = []
        if wanted.metrics is not None:
            metrics = _Metrics(roster, figures)
            self._loops.append(_Loop(wanted.metrics, metrics.send, metrics.stop, words, tell))
        self._traces = _Traces(roster, wanted.batch) if wanted.traces is not None else None
        if wanted.traces is not None and self._traces is not None:
            traces = self._traces
            self._loops.append(_Loop(wanted.traces, traces.send, traces.stop, words, tell))

    def start(self) -> None:
        """Begin."""
        for loop in self._loops:
            loop.start()

    def close(self) -> None:
        """Send what is there, within two seconds, and end."""
        if self._traces is not None:
            self._traces.steps.settle()
        for loop in self._loops:
            loop.end()
        deadline = time.monotonic() + _LAST_S
        for loop in self._loops:
            loop.wait(deadline)


class _Metrics:
    """The figures."""

    def __init__(self, roster: Roster, figures: Figures) -> None:
        self._figures = figures
        self._resources = Resources(roster)
        self._exporter = OTLPMetricExporter()
        self.stop: Callable[[], object] = self._exporter.shutdown

    def send(self) -> bool:
        """Send those of now; whether they were taken."""
        found = self._figures.now()
        if not found:
            return True
        data = metrics_data(found, self._resources)
        return self._exporter.export(data) is MetricExportResult.SUCCESS


class _Traces:
    """The steps."""

    def __init__(self, roster: Roster, batch: int) -> None:
        self.steps = Steps(roster, Resources(roster), batch)
        self._exporter = OTLPSpanExporter()
        self.stop: Callable[[], object] = self._exporter.shutdown

    def send(self) -> bool:
        """Send all that have ended; whether they were taken."""
        while True:
            batch = self.steps.next()
            taken = SpanExportResult.SUCCESS
            if batch.spans:
                taken = self._exporter.export(batch.spans)
            if taken is not SpanExportResult.SUCCESS:
                return False
            self.steps.sent(batch)
            if not batch.reached:
                return True


class _Words(logging.Handler):
    """What the SDK logs: kept back, the last of each thread for who asks."""

    def __init__(self) -> None:
        super().__init__()
        self._said = threading.local()
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the words of a record."""
        with contextlib.suppress(TypeError, ValueError):  # they do not fit their own format
            self.say(record.getMessage())

    def say(self, words: str) -> None:
        """Keep words of this thread."""
        self._said.last = words

    def last(self) -> str:
        """Those of this thread."""
        words = " ".join(str(getattr(self._said, "last", "it is not said why")).split())
        return words.rstrip(".") if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


class _Loop:
    """Sends one kind every few seconds, and at the end.

    Args:
        send: Sends what there is, and answers whether it was taken.
        stop: Ends a `send` in another thread that waits for its receiver.
    """

    def __init__(
        self,
        signal: Signal,
        send: Callable[[], bool],
        stop: Callable[[], object],
        words: _Words,
        tell: Tell,
    ) -> None:
        self._signal, self._send, self._stop = signal, send, stop
        self._words, self._tell = words, tell
        self._is_over = threading.Event()
        self._fails: bool | None = None
        self._thread = threading.Thread(target=self._run, name=f"otel-{signal.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Have it send for a last time, unless that is in vain."""
        self._is_over.set()

    def wait(self, deadline: float) -> None:
        """Wait for its end, and no longer than that for its receiver."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._stop()

    def _run(self) -> None:
        while not self._is_over.wait(self._signal.every_s):
            self._note(was_taken=self._try())
        if not self._fails:
            self._try()

    def _try(self) -> bool:
        """Send what there is; whether it was taken.

        Older SDKs raise what keeps them from it, such as a receiver that is down or slow.
        """
        try:
            return self._send()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next may be taken
            self._words.say(_LOGIN.sub("", f"{type(error).__name__}: {error}"))
            return False

    def _note(self, *, was_taken: bool) -> None:
        """Tell the first failure, and once that it is over."""
        kind, url = self._signal.name, _LOGIN.sub("", self._signal.url)
        if not was_taken and self._fails is None:
            why = _unreachable(self._signal.url) or self._words.last()
            self._tell(f"{url} does not take {kind}: {why}; this is said once.")
        elif was_taken and self._fails:
            self._tell(f"{url} takes {kind} now.")
        if not was_taken or self._fails is not None:
            self._fails = not was_taken


def _unreachable(url: str) -> str | None:
    """Why nothing can be sent to an address at all; None where somebody listens."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None
