"""What becomes of sending to OpenTelemetry where a try fails in whatever way."""

from __future__ import annotations

import logging
import queue
import socket
from collections.abc import Iterator

import pytest

from probing.cluster.node.otel.sending import _Loop, _Words
from probing.cluster.node.otel.wanted import Signal
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


@pytest.fixture
def words() -> Iterator[_Words]:
    """Keeps back what the SDK logs, until the test is over."""
    logger = logging.getLogger("opentelemetry")
    before, propagates = logger.handlers[:], logger.propagate
    yield _Words()
    logger.handlers[:], logger.propagate = before, propagates


def test_a_try_that_raises_is_told_once_and_tried_again(words: _Words) -> None:
    """As those of older SDKs do where the receiver is slow or down."""
    tries: Iterator[int] = iter(range(10**6))
    told: queue.Queue[str] = queue.Queue()

    def send() -> bool:
        if next(tries) < 3:
            raise ConnectionError("with url: /v1/metrics?token=secret")
        return True

    with socket.socket() as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.listen()
        url = f"http://127.0.0.1:{receiver.getsockname()[1]}/v1/metrics"
        signal = Signal(name="metrics", url=url, every_s=0.01)
        loop = _Loop(signal, send, lambda: None, words, told.put)
        loop.start()
        sentences = [told.get(timeout=DEADLINE_S), told.get(timeout=DEADLINE_S)]
        loop.end()
        loop._thread.join(60)
    why = "ConnectionError: with url: /v1/metrics"
    assert sentences == [
        f"{url} does not take metrics: {why}; this is said once.",
        f"{url} takes metrics now.",
    ]
    assert told.empty()
