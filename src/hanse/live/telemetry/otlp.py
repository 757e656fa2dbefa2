"""The export of spans to an OpenTelemetry collector, over OTLP/HTTP, on a thread of its own.

Off unless ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set; needs the extra
``hanse[otel]``. The league never waits for a collector: spans that do not fit the queue or cannot be
delivered are dropped and counted.
"""

import http.client
import logging
import os
import ssl
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from hanse import __version__
from hanse.live.telemetry.prometheus_text import MetricFamily, by_label, counter, unlabelled_sample
from hanse.live.telemetry.spans import Span
from hanse.registry.extras import install_command
from hanse.security.identity import Identity

QUEUE_SPANS_MAX: Final = 8_192
"""Spans that wait for the collector; further ones are dropped."""
BATCH_SPANS_MAX: Final = 512
LINGER_SECONDS: Final = 1.0
"""Seconds that spans wait for others to share a request."""
REQUEST_SECONDS_MAX: Final = 10.0
"""Seconds after which a request to the collector has failed."""
RETRIES_MAX: Final = 2
PAUSE_SECONDS: Final = 1.0
"""Seconds before the first retry; doubled before the next."""
CLOSE_SECONDS_MAX: Final = 1.0
"""Seconds that a stopping daemon waits for the last request."""
ANSWER_BYTES_MAX: Final = 1 << 16
_RETRIED_STATUSES: Final = (429, 502, 503, 504)
"""Statuses after which the standard allows a retry."""
log = logging.getLogger(__name__)


class ExportTarget(msgspec.Struct, frozen=True):
    """The collector to export to."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    authority: str = ""
    """A file of trusted certificates; empty: the system's."""


def read_target(environment: Mapping[str, str]) -> ExportTarget | None:
    """Return the target that OpenTelemetry's variables name; None: none."""
    url = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not url and environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        url = environment["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
    if not url:
        return None
    pairs = [pair.partition("=") for pair in environment.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")]
    headers = tuple((unquote(name.strip()), unquote(value.strip())) for name, sign, value in pairs if sign)
    return ExportTarget(url, headers, environment.get("OTEL_EXPORTER_OTLP_CERTIFICATE", ""))


def create_exporter(identity: Identity, environment: Mapping[str, str] = os.environ) -> "SpanExporter | None":
    """Return the exporter that the environment asks for. If it cannot be made, log a warning and return
    None."""
    target = read_target(environment)
    if target is None:
        return None
    try:
        return SpanExporter(target, identity, environment.get("OTEL_SERVICE_NAME", "hanse"))
    except ModuleNotFoundError:
        log.warning("no traces are exported: they need opentelemetry-proto: %s", install_command("otel"))
        return None
    except (ImportError, ValueError, OSError) as error:
        log.warning("no traces are exported: %s", error)
        return None


class SpanExporter:
    """A bounded queue and the thread that empties it."""

    def __init__(self, target: ExportTarget, identity: Identity, service: str) -> None:
        self.exported = 0
        self.dropped: dict[str, float] = {"failed": 0, "queue_full": 0, "stopped": 0}
        self._target = target
        self._encode = _encoder(identity, service)
        self._parts = urlsplit(target.url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise ValueError(f"{target.url!r} is not an http or https address")
        secure = self._parts.scheme == "https"
        self._context = ssl.create_default_context(cafile=target.authority or None) if secure else None
        self._queue: deque[Span] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def offer(self, spans: list[Span]) -> None:
        """Take the spans of a job, or drop them. Never wait for the collector."""
        with self._changed:
            if len(self._queue) + len(spans) > QUEUE_SPANS_MAX:
                self.dropped["queue_full"] += len(spans)
                return
            self._queue.extend(spans)
            if len(self._queue) >= BATCH_SPANS_MAX or len(self._queue) == len(spans):
                self._changed.notify()

    def families(self) -> list[MetricFamily]:
        """Return the counts of exported and dropped spans."""
        return [
            counter(
                "hanse_trace_spans_exported_total",
                "Spans that the collector took.",
                unlabelled_sample(self.exported),
            ),
            counter(
                "hanse_trace_spans_dropped_total",
                "Spans that were dropped, by reason, instead of waiting.",
                by_label("reason", self.dropped),
            ),
        ]

    def close(self) -> None:
        """Send the remaining spans if the collector is fast; otherwise drop them."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                return
            self._deliver(batch)

    def _next_batch(self) -> list[Span]:
        """Wait for spans and return a batch; empty: the exporter is closed."""
        with self._changed:
            while not self._queue and not self._closing:
                self._changed.wait()
            if not self._closing and len(self._queue) < BATCH_SPANS_MAX:
                self._changed.wait(LINGER_SECONDS)
            return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_SPANS_MAX))]

    def _deliver(self, batch: list[Span]) -> None:
        body = self._encode(batch)
        pause = PAUSE_SECONDS
        for attempt in range(RETRIES_MAX + 1):
            status = self._post(body)
            if 200 <= status < 300:
                self.exported += len(batch)
                return
            if status not in _RETRIED_STATUSES or attempt == RETRIES_MAX or self._wait_before_retry(pause):
                break
            pause *= 2
        self.dropped["stopped" if self._closing else "failed"] += len(batch)

    def _wait_before_retry(self, seconds: float) -> bool:
        """Wait before a retry; return whether the daemon stops meanwhile."""
        with self._changed:
            if not self._closing:
                self._changed.wait_for(lambda: self._closing, seconds)
            return self._closing

    def _post(self, body: bytes) -> int:
        """Return the status of the collector's answer; 0: there was none."""
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(
                host, port, context=self._context, timeout=REQUEST_SECONDS_MAX
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=REQUEST_SECONDS_MAX)
        headers = {"Content-Type": "application/x-protobuf", **dict(self._target.headers)}
        try:
            connection.request("POST", self._parts.path or "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            log.debug("the collector did not answer: %s", error)
            return 0
        else:
            return answer.status
        finally:
            connection.close()


def _encoder(identity: Identity, service: str) -> Any:
    """Return an encoder of spans to an OTLP request, built on OpenTelemetry's own messages."""
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb2  # noqa: PLC0415  an extra
    from opentelemetry.proto.common.v1.common_pb2 import (  # noqa: PLC0415  as above
        AnyValue,
        InstrumentationScope,
        KeyValue,
    )
    from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: PLC0415  as above

    def pair(name: str, value: str | int) -> Any:
        any_value = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        return KeyValue(key=name, value=any_value)

    resource = [
        pair("service.name", service),
        pair("service.instance.id", identity.name),
        pair("service.version", __version__),
        pair("hanse.league", identity.league),
    ]

    def message(span: Span) -> Any:
        kind = trace_pb2.Span.SPAN_KIND_CONSUMER if span.is_job else trace_pb2.Span.SPAN_KIND_INTERNAL
        status = trace_pb2.Status.STATUS_CODE_ERROR if span.failed else trace_pb2.Status.STATUS_CODE_UNSET
        return trace_pb2.Span(
            trace_id=span.trace,
            span_id=span.span,
            parent_span_id=span.parent,
            name=span.name,
            kind=kind,
            start_time_unix_nano=span.begin,
            end_time_unix_nano=span.end,
            attributes=[pair(name, value) for name, value in span.attributes],
            status=trace_pb2.Status(code=status),
        )

    def encode(batch: list[Span]) -> bytes:
        request = service_pb2.ExportTraceServiceRequest()
        group = request.resource_spans.add()
        group.resource.attributes.extend(resource)
        part = group.scope_spans.add()
        part.scope.CopyFrom(InstrumentationScope(name="hanse", version=__version__))
        part.spans.extend(message(span) for span in batch)
        return bytes(request.SerializeToString())

    return encode
