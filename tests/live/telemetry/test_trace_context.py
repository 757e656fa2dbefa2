"""Traces: what is carried, what is made of a job's life, and an exporter that nobody waits for."""

import sys
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.clock import Clock
from hanse.live.telemetry import otlp
from hanse.live.telemetry.otlp import (
    QUEUE_SPANS_MAX,
    ExportTarget,
    SpanExporter,
    create_exporter,
    read_target,
)
from hanse.live.telemetry.spans import JOBS_MAX, Span, SpanBuilder
from hanse.live.telemetry.trace_context import add_trace, parse_traceparent
from hanse.model.effects import JobAccepted, JobSettled, RequestRejected, SendMessage
from hanse.model.events import JobSubmitted, MessageReceived, Tick
from hanse.model.ids import job_id, task_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.job_parser import decode_program, parse_job_form
from hanse.model.messages import (
    AttemptEnd,
    Claim,
    Envelope,
    Outcome,
    Shape,
    TaskBatch,
    TaskTemplate,
    TaskUpdates,
)
from hanse.model.resources import Resources
from hanse.registry.extras import install_command
from hanse.security.identity import Identity, Role
from hanse.security.wall_time import wall_now
from tests.live.telemetry.collector import Collector, collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
ME = Identity("league", Role.BROKER, "b1")
WRONG = [
    "",
    "00",
    PARENT.upper(),
    f" {PARENT}",
    f"{PARENT}\n",
    f"{PARENT}-00",
    PARENT.replace("00-", "01-", 1),
    PARENT.replace("00-", "ff-", 1),
    f"00-{'0' * 32}-b7ad6b7169203331-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE[:-1]}-b7ad6b7169203331-01",
    f"00-{TRACE[:-1]}g-b7ad6b7169203331-01",
    PARENT.replace("0af", "٠af"),  # digits, but not those
]


def spec_of(data: dict[str, Any]) -> JobSpec:
    spec = parse_job_form(data)
    assert isinstance(spec, JobSpec), spec
    return spec


# --- carrying ----------------------------------------------------------------------------------------------


def test_a_job_carries_its_trace_to_its_tasks() -> None:
    spec = spec_of({"command": ["true"], "trace": PARENT, "env": {"MODE": "fast"}})
    assert spec.trace == PARENT
    command = decode_program(spec.groups[0].payload)
    assert command is not None
    assert command.env == (("MODE", "fast"), ("TRACEPARENT", PARENT))
    grouped = spec_of({"trace": PARENT, "command": ["true"], "groups": [{"name": "a"}, {"name": "b"}]})
    assert [dict(decode_program(group.payload).env) for group in grouped.groups] == [  # type: ignore[union-attr]
        {"TRACEPARENT": PARENT}
    ] * 2


def test_what_the_user_sets_goes_before_and_without_a_command_nothing_is_set() -> None:
    spec = spec_of({"command": ["true"], "trace": PARENT, "env": {"TRACEPARENT": "mine"}})
    assert dict(decode_program(spec.groups[0].payload).env) == {"TRACEPARENT": "mine"}  # type: ignore[union-attr]
    assert spec_of({"trace": PARENT}).groups[0].payload == b""
    assert spec_of({"command": ["true"]}).trace == ""


@pytest.mark.parametrize("text", WRONG)
def test_a_trace_that_is_none_is_refused_in_a_job_and_ignored_in_a_header(text: str) -> None:
    problems = parse_job_form({"command": ["true"], "trace": text})
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == ["trace"]
    assert parse_traceparent(text) is None
    data = {"command": ["true"]}
    assert add_trace({"traceparent": text}, [data]) == [{"command": ["true"]}]


def test_a_header_gives_a_job_its_trace_unless_it_names_one() -> None:
    headers = {"traceparent": PARENT}
    own = {"trace": PARENT.replace("b7", "c7")}
    plain, no_job = {"command": "true"}, ["no", "job"]
    assert add_trace(headers, [plain, own, no_job, plain]) == [
        {"command": "true", "trace": PARENT},
        own,
        no_job,
        {"command": "true", "trace": PARENT},
    ]
    assert plain == {"command": "true"}, "what came is left as it is"
    assert add_trace({}, [{}]) == [{}]


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255))
def test_every_sound_parent_is_read(trace: bytes, span: bytes, flags: int) -> None:
    found = parse_traceparent(f"00-{trace.hex()}-{span.hex()}-{flags:02x}")
    if not any(trace) or not any(span):
        assert found is None
    else:
        assert found is not None
        assert (found.trace, found.span, found.sampled) == (trace, span, bool(flags % 2))


# --- making ------------------------------------------------------------------------------------------------


class Story:
    """A broker's history, told to a maker of spans."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.now = self.clock.now()
        self.made: list[list[Span]] = []
        self.maker = SpanBuilder(self.clock, self.made.append)

    def tell(self, event: Any, *commands: Any, fresh: bool = True) -> None:
        self.maker.on_event_durable(event, list(commands), fresh)

    def at(self, milliseconds: int) -> int:
        return self.now + milliseconds * 1_000

    def submit(self, spec: JobSpec, serial: int = 1) -> None:
        self.tell(
            JobSubmitted(self.at(-900), "me", serial, spec), JobAccepted("me", serial, job_id(1, serial))
        )

    def claim(self, serial: int = 1, cluster: str = "north") -> None:
        lot = TaskBatch(
            job_id(1, serial),
            0,
            TaskTemplate(Shape(Resources(1_000)), "e"),
            (0,),
            (1,),
            (0,),
            Resources(1_000),
        )
        self.tell(Tick(self.at(10)), SendMessage(Envelope("b1", cluster, 0, 1, 0, Claim(1, (), 0, (lot,)))))

    def news(self, milliseconds: int, *, ended: bool, serial: int = 1, fresh: bool = True) -> None:
        task = task_id(job_id(1, serial), 0)
        news = TaskUpdates(
            () if ended else ((task, 1, 0),), (AttemptEnd(task, 1, Outcome.SUCCEEDED),) if ended else ()
        )
        self.tell(MessageReceived(self.at(milliseconds), Envelope("north", "b1", 0, 1, 0, news)), fresh=fresh)

    def settle(self, outcome: Outcome = Outcome.SUCCEEDED, serial: int = 1) -> None:
        self.tell(Tick(self.at(400)), JobSettled(job_id(1, serial), outcome))


def test_a_life_becomes_five_spans_under_one() -> None:
    story = Story()
    story.submit(JobSpec((TaskGroup(),), name="build", tenant="physics", trace=PARENT))
    story.claim()
    story.news(100, ended=False)
    story.news(200, ended=False)  # only the first start counts
    story.news(300, ended=True)
    story.news(350, ended=True, fresh=False)  # a message that came before
    story.settle()
    ((root, *parts),) = story.made
    assert (root.name, root.trace.hex(), root.parent.hex()) == ("job build", TRACE, "b7ad6b7169203331")
    assert [part.name for part in parts] == ["submit", "queue", "place", "run", "settle"]
    assert {part.trace for part in parts} == {root.trace}
    assert {part.parent for part in parts} == {root.span}
    assert len({span.span for span in (root, *parts)}) == 6
    for before, after in pairwise(parts):
        assert before.end == after.begin
    assert (parts[0].begin, parts[-1].end) == (root.begin, root.end)
    assert parts[3].end - parts[3].begin == 200_000_000
    assert parts[4].end - parts[4].begin == 100_000_000
    assert abs(root.end // 1_000 - wall_now()) < 60_000_000
    assert dict(root.attributes) == {
        "messaging.system": "hanse",
        "messaging.destination.name": "physics",
        "messaging.message.id": "1-1",
        "hanse.job.tasks": 1,
        "hanse.job.attempts": 1,
        "hanse.job.clusters": "north",
        "hanse.job.outcome": "succeeded",
    }


def test_a_job_that_never_ran_has_the_spans_that_it_lived() -> None:
    story = Story()
    story.submit(JobSpec((TaskGroup(),)))
    story.settle(Outcome.FAILED)
    ((root, *parts),) = story.made
    assert [part.name for part in parts] == ["submit", "queue"]
    assert root.parent == b""
    assert len(root.trace) == 16
    assert root.failed
    assert dict(root.attributes)["error.type"] == "failed"


def test_who_does_not_record_a_trace_gets_no_spans_and_the_number_of_jobs_is_bounded() -> None:
    story = Story()
    story.submit(JobSpec((TaskGroup(),), trace=PARENT[:-1] + "0"))
    story.settle()
    assert story.made == []
    spec = JobSpec((TaskGroup(),))
    for serial in range(JOBS_MAX + 3):
        story.submit(spec, serial)
    assert story.maker.untraced == 3
    story.settle(serial=0)
    story.submit(spec, JOBS_MAX + 7)
    assert story.maker.untraced == 3
    story.tell(JobSubmitted(0, "you", 1, spec), RequestRejected("you", 1, "no"))
    assert story.maker.untraced == 4


# --- exporting ---------------------------------------------------------------------------------------------


def spans(count: int) -> list[Span]:
    return [Span(bytes(16), bytes(8), b"", f"s{number}", 1, 2) for number in range(count)]


def test_spans_arrive_as_they_were_made() -> None:
    collector = Collector()
    with collecting(collector) as address:
        exporter = SpanExporter(ExportTarget(f"{address}/v1/traces", (("x-key", "secret"),)), ME, "hanse")
        story = Story()
        story.maker = SpanBuilder(story.clock, exporter.offer)
        story.submit(JobSpec((TaskGroup(),), name="build", trace=PARENT))
        story.settle(Outcome.FAILED)
        collector.wait_for(spans=3)
        exporter.close()
    root = collector.spans[0]
    assert (root.name, root.trace_id.hex(), root.parent_span_id.hex()) == (
        "job build",
        TRACE,
        "b7ad6b7169203331",
    )
    assert root.kind == root.SPAN_KIND_CONSUMER
    assert root.status.code == root.status.STATUS_CODE_ERROR
    assert {pair.key: pair.value.int_value for pair in root.attributes}["hanse.job.tasks"] == 1
    assert [span.parent_span_id for span in collector.spans[1:]] == [root.span_id] * 2
    assert collector.resources[0]["service.name"] == "hanse"
    assert collector.resources[0]["service.instance.id"] == "b1"
    assert collector.headers[0]["x-key"] == "secret"
    assert exporter.exported == 3
    assert not any(exporter.dropped.values())


def test_a_collector_that_hangs_costs_spans_and_no_time() -> None:
    collector = Collector(held=True)
    with collecting(collector) as address:
        exporter = SpanExporter(ExportTarget(f"{address}/v1/traces"), ME, "hanse")
        exporter.offer(spans(1))
        collector.wait_for(requests=1)  # it has the first, and says nothing
        exporter.offer(spans(QUEUE_SPANS_MAX))
        exporter.offer(spans(6))
        assert exporter.dropped["queue_full"] == 6
        collector.released.set()
        collector.wait_for(spans=QUEUE_SPANS_MAX + 1)
        exporter.close()
    assert exporter.exported == QUEUE_SPANS_MAX + 1


def test_a_collector_that_is_busy_is_asked_again_and_one_that_refuses_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(otlp, "LINGER_SECONDS", 0.01)
    collector = Collector(statuses=(503, 429, 400))
    with collecting(collector) as address:
        exporter = SpanExporter(ExportTarget(f"{address}/v1/traces"), ME, "hanse")
        exporter.offer(spans(2))
        collector.wait_for(requests=3)
        exporter.offer(spans(3))
        collector.wait_for(spans=3)
        exporter.close()
    assert (exporter.exported, exporter.dropped["failed"]) == (3, 2)


def test_nobody_at_the_other_end_is_counted_and_closing_does_not_hang() -> None:
    with collecting(Collector()) as address:
        pass  # gone again
    exporter = SpanExporter(ExportTarget(f"{address}/v1/traces"), ME, "hanse")
    exporter.offer(spans(4))
    exporter.close()
    assert exporter.dropped["failed"] + exporter.dropped["stopped"] == 4
    assert not [thread for thread in threading.enumerate() if thread.name == "otlp"]


def test_the_variables_of_opentelemetry_say_where_spans_go() -> None:
    assert read_target({}) is None
    assert create_exporter(ME, {}) is None
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c, d=e"}
    assert read_target(both) == ExportTarget("http://c:1/v1/traces", (("a", "b c"), ("d", "e")))
    assert read_target({**both, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://d/x"}) == ExportTarget(
        "https://d/x", (("a", "b c"), ("d", "e"))
    )
    assert create_exporter(ME, {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}) is None


def test_without_the_extra_the_log_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert create_exporter(ME, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.invalid:4318"}) is None
    assert install_command("otel") in caplog.text
