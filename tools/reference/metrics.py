"""The reference page of the metrics, from the calls that make them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hanse.live import telemetry
from hanse.live.telemetry.broker_metrics import BrokerMetrics
from hanse.live.telemetry.http_metrics import HttpMetrics
from hanse.live.telemetry.job_metrics import JobMetrics
from hanse.live.telemetry.member_metrics import JournalMetrics, MemberMetrics
from hanse.live.telemetry.otlp import SpanExporter
from hanse.live.telemetry.placement_metrics import PlacementMetrics
from hanse.live.telemetry.view_metrics import ViewMetrics
from hanse.live.telemetry.warden_metrics import BackendCounts, WardenMetrics
from tools.reference.markdown import fence, paragraphs, table

MAKERS: Final = ("counter", "gauge", "histogram")
PLACES: Final = {
    "": "every member",
    BackendCounts.__name__: "warden, runner",
    BrokerMetrics.__name__: "broker",
    HttpMetrics.__name__: "every member",
    JobMetrics.__name__: "broker",
    SpanExporter.__name__: "broker",
    JournalMetrics.__name__: "broker, warden",
    MemberMetrics.__name__: "every member",
    PlacementMetrics.__name__: "broker",
    ViewMetrics.__name__: "broker",
    WardenMetrics.__name__: "warden",
}
"""The class that makes a metric -> the members that have it; no class: functions that all members use."""
SCRAPE: Final = """\
curl --cacert ca.pem -H "Authorization: Bearer $TOKEN" https://HOST:PORT/metrics
"""


class Metric(NamedTuple):
    """One metric as the source makes it."""

    name: str
    kind: str
    place: str
    text: str


def page() -> str:
    """The whole page."""
    return paragraphs(
        "# Metrics",
        fence("sh", SCRAPE),
        "Every member answers `GET /metrics` in the text format of Prometheus, to the role `viewer` and "
        "above. "
        "[Monitoring](../operator/monitoring.md#metrics) explains scraping, alerts and the dashboard.",
        "Labels never hold an id. Amounts of resources are in cores, bytes, GPUs and whole units. "
        "Counters begin "
        "at 0 when a process starts. A histogram has the series `_bucket`, `_sum` and `_count`.",
        table(
            ("metric", "kind", "at", "meaning"),
            [(f"`{one.name}`", one.kind, one.place, one.text) for one in metrics()],
        ),
    )


def metrics() -> list[Metric]:
    """Every metric by its name."""
    found: dict[str, Metric] = {}
    for folder in telemetry.__path__:
        for path in sorted(Path(folder).glob("*.py")):
            for one in _made(ast.parse(path.read_text(encoding="utf-8"))):
                before = found.get(one.name, one)
                places = dict.fromkeys([*before.place.split(", "), *one.place.split(", ")])
                found[one.name] = one._replace(place=", ".join(places))
    return [found[name] for name in sorted(found)]


def _made(tree: ast.Module) -> Iterator[Metric]:
    for node in tree.body:
        place = node.name if isinstance(node, ast.ClassDef) else ""
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
                name, text = (ast.literal_eval(argument) for argument in call.args[:2])
                yield Metric(name, call.func.id, PLACES[place], text)
