"""A receiver of OTLP over HTTP, which decodes what comes by the official definitions."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

_KINDS: Mapping[str, Any] = {
    "/v1/metrics": metrics_service.ExportMetricsServiceRequest,
    "/v1/traces": trace_service.ExportTraceServiceRequest,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A span as it came."""

    resource: Mapping[str, Any]
    values: Mapping[str, Any]
    span: Any

    @property
    def step(self) -> int:
        """The number of the step."""
        return int(self.values["probing.step"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a metric as it came."""

    resource: Mapping[str, Any]
    metric: Any
    values: Mapping[str, Any]
    value: float


class Receiver:
    """Has a port of loopback from the start, and listens as a context manager.

    Args:
        status: What it answers; None for nothing, ever.
    """

    def __init__(self, status: int | None = 200) -> None:
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []
        self.is_over = threading.Event()
        received, is_over = self.requests, self.is_over

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["Content-Type"] == "application/x-protobuf"
                received.append((self.path, dict(self.headers), _decoded(self.path, body)))
                if status is None:
                    is_over.wait()
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.server_bind()
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Receiver:  # noqa: PYI034 - `Self` is newer than Python 3.10
        self._server.server_activate()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Give the port back."""
        self._server.server_close()

    def steps(self) -> list[Step]:
        """All spans so far, in the order in which they came."""
        return [
            Step(resource=who, values=_values(span.attributes), span=span)
            for who, scope in self._scopes("/v1/traces", "resource_spans", "scope_spans")
            for span in scope.spans
        ]

    def points(self) -> list[Point]:
        """All points of metrics so far, in the order in which they came."""
        return [
            Point(
                resource=who,
                metric=metric,
                values=_values(point.attributes),
                value=getattr(point, point.WhichOneof("value")),
            )
            for who, scope in self._scopes("/v1/metrics", "resource_metrics", "scope_metrics")
            for metric in scope.metrics
            for point in metric.gauge.data_points
        ]

    def _scopes(self, path: str, resources: str, scopes: str) -> Iterator[tuple[Any, Any]]:
        """Each resource with what one scope has measured of it."""
        for came, _, message in list(self.requests):
            if came == path:
                for of_one in getattr(message, resources):
                    who = _values(of_one.resource.attributes)
                    for scope in getattr(of_one, scopes):
                        assert scope.scope.name == "probing"
                        yield who, scope


def _decoded(path: str, body: bytes) -> Any:
    message = _KINDS[path]()
    message.ParseFromString(body)
    return message


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
