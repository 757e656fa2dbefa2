"""An OTLP/HTTP collector for tests: it decodes what it gets with OpenTelemetry's own messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_SECONDS_MAX = 60.0


class Collector:
    """What came in. With ``held`` it takes requests and does not answer them until it is released."""

    def __init__(self, held: bool = False, statuses: tuple[int, ...] = ()) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.statuses = list(statuses)
        """Answers to give before all is well."""
        self.released = threading.Event()
        if not held:
            self.released.set()
        self.arrived = threading.Condition()
        self.requests = 0

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """One request; the status to answer with."""
        with self.arrived:
            self.requests += 1
            self.arrived.notify_all()
        self.released.wait(WAIT_SECONDS_MAX)
        with self.arrived:
            self.headers.append(headers)
            if self.statuses:
                return self.statuses.pop(0)
            request = ExportTraceServiceRequest.FromString(body)
            for group in request.resource_spans:
                pairs = {pair.key: pair.value.string_value for pair in group.resource.attributes}
                self.resources.append(pairs)
                for scope in group.scope_spans:
                    self.spans += scope.spans
            self.arrived.notify_all()
        return 200

    def wait_for(self, spans: int = 0, requests: int = 0) -> None:
        """Wait until so much has come."""
        with self.arrived:
            came = self.arrived.wait_for(
                lambda: len(self.spans) >= spans and self.requests >= requests, WAIT_SECONDS_MAX
            )
        assert came, f"{len(self.spans)} spans in {self.requests} requests"


@contextmanager
def collecting(collector: Collector) -> Iterator[str]:
    """A server on this machine; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.take(dict(self.headers), body) if self.path == "/v1/traces" else 404
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        collector.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
