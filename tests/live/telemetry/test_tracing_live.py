"""Traces of a real league: carried from the submitter to the task, exported to a collector, and never in the
way of the work when the collector hangs."""

import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from click.testing import CliRunner

from hanse.cli.main import hanse
from hanse.security.identity import Identity, Role
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.telemetry.collector import Collector, collecting
from tests.live.telemetry.scraped import samples_of, total

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
LEAGUE = """
brokers: [{name: b1}]
clusters: [{name: north, nodes: [{cpus: 8, memory: 1GiB}]}]
"""


@contextmanager
def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveLeague]:
    """A league that exports to a collector."""
    with collecting(collector) as address, open_directory() as directory:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with running(directory / "home", LEAGUE) as live:
            yield live


def submitted_with(live: LiveLeague, header: str) -> str:
    """Submit a job with a header of its request, as a program under tracing does."""
    entry = live.league.broker("b1")
    context = live.credentials.client_context(Identity(live.league.name, Role.BROKER, "b1"))
    door = http.client.HTTPSConnection(entry.door.host, entry.door.port, context=context)
    try:
        body = msgspec.json.encode({"jobs": [{"command": "echo $TRACEPARENT", "memory": "16MiB"}]})
        door.request("POST", "/v1/jobs", body, {"traceparent": header, "Content-Type": "application/json"})
        answer = msgspec.json.decode(door.getresponse().read())
    finally:
        door.close()
    return str(answer["results"][0]["job"])


def test_a_trace_goes_from_the_submitter_to_the_task_and_to_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = Collector()
    with traced(collector, monkeypatch) as live:
        job = submitted_with(live, PARENT)
        live.wait(job)
        assert live.output(job) == f"{PARENT}\n"
        alone = submitted_with(live, "nonsense")
        live.wait(alone)
        assert live.output(alone) == "\n"
        collector.wait_for(spans=12)
        found = samples_of(live.broker().raw("GET", "/metrics")[1])
    roots = {
        attribute.value.string_value: span
        for span in collector.spans
        for attribute in span.attributes
        if attribute.key == "messaging.message.id"
    }
    mine = roots[job]
    assert (mine.trace_id.hex(), mine.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    parts = [span for span in collector.spans if span.parent_span_id == mine.span_id]
    assert [part.name for part in parts] == ["submit", "queue", "place", "run", "settle"]
    for part in parts:
        assert mine.start_time_unix_nano <= part.start_time_unix_nano
        assert part.start_time_unix_nano <= part.end_time_unix_nano <= mine.end_time_unix_nano
    assert roots[alone].trace_id != mine.trace_id
    assert not roots[alone].parent_span_id
    assert total(found, "hanse_trace_spans_dropped_total") == 0


def test_a_collector_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(held=True)
    with traced(collector, monkeypatch) as live:
        jobs = [live.submit({"command": "true", "memory": "16MiB"}) for _ in range(10)]
        assert [live.wait(job)["state"] for job in jobs] == ["succeeded"] * 10
        collector.wait_for(requests=1)  # it has something, and does not answer
        more = [live.submit({"command": "true", "memory": "16MiB"}) for _ in range(10)]
        assert [live.wait(job)["state"] for job in more] == ["succeeded"] * 10
        found = samples_of(live.broker().raw("GET", "/metrics")[1])
        assert total(found, "hanse_jobs_finished_total", outcome="succeeded") == 20
        assert total(found, "hanse_trace_spans_exported_total") == 0
        live.kill("b1", 15)  # and the broker ends in good order all the same
        live.start("b1").settle()


def test_the_command_line_takes_a_trace_by_option_or_from_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def form(*words: str, **environment: str) -> dict[str, object]:
        line = ["submit", "--dry-run", "--json", *words, "--", "true"]
        done = CliRunner().invoke(hanse, line, env={"TRACEPARENT": None, **environment})
        assert done.exit_code == 0, done.output
        job: dict[str, object] = msgspec.json.decode(done.stdout)["jobs"][0]
        return job

    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert "trace" not in form()
    assert form("--trace", PARENT)["trace"] == PARENT
    assert form(TRACEPARENT=PARENT)["trace"] == PARENT
    assert "trace" not in form(TRACEPARENT="nonsense")
    other = PARENT.replace("b7", "c7")
    assert form("--trace", other, TRACEPARENT=PARENT)["trace"] == other
    assert "TRACEPARENT" not in os.environ
    wrong = CliRunner().invoke(hanse, ["submit", "--dry-run", "--trace", "nonsense", "--", "true"])
    assert wrong.exit_code != 0
