"""A real league with one large job: it is cancelled while its heir and then its broker are killed, others'
work goes on, and every door leads to whoever has it."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.live.harness import WAIT_SECONDS_MAX, LiveLeague, running

TASKS = 300_000
BROKERS = ("b1", "b2", "b3")
LEAGUE = """
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 4}]}]
"""


def followed(live: LiveLeague, first: str, path: str) -> tuple[int, dict[str, Any], list[str]]:
    """Ask a broker, and whom it points to; the last answer, and who was asked."""
    asked = [first]
    while True:
        status, answer = live.broker(asked[-1]).raw("GET", path)
        told = msgspec.json.decode(answer)
        if status != 307:
            return status, told, asked
        location = urlsplit(told["error"]["hint"].removeprefix("ask "))
        path = f"{location.path}?{location.query}"
        name = told["error"]["message"].split()[0]
        assert name not in asked, f"{name} was asked before: {asked}"
        asked.append(name)


def until_kept(live: LiveLeague, job: str, broker: str) -> None:
    """Wait until a broker has a copy of a job."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while live.broker(broker).raw("GET", f"/v1/jobs/{job}?local=1")[0] != 200:
        assert time.monotonic() < deadline, f"{broker} has no copy of {job}"
        time.sleep(0.05)


def ended(live: LiveLeague, job: str, first: str) -> dict[str, Any]:
    """How a job has ended, as whoever speaks for it tells."""
    deadline = time.monotonic() + 2 * WAIT_SECONDS_MAX
    while True:
        status, told, asked = followed(live, first, f"/v1/jobs/{job}")
        if status == 200 and told["row"]["ended"] is not None:
            return told["row"]  # type: ignore[no-any-return]
        assert time.monotonic() < deadline, f"{asked}: {told}"
        time.sleep(0.2)


def test_a_large_job_is_cancelled_whoever_falls_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path, LEAGUE) as live:
        live.settle()
        job = live.submit({"command": ["true"], "count": TASKS})
        live.broker().ask("POST", f"/v1/jobs/{job}/cancel")
        other = live.submit({"command": ["true"]})
        assert live.wait(other)["state"] == "succeeded", "others' work goes on"
        live.kill("b2")  # the heir: what has ended so far goes to the next one, as runs
        until_kept(live, job, "b3")
        live.kill("b1")
        time.sleep(1.0)
        live.start("b1", "b2")
        for name in BROKERS:
            row = ended(live, job, name)
            assert row["state"] == "cancelled"
            assert row["cancelled"] + row["succeeded"] + row["failed"] == TASKS
        again = live.submit({"command": ["true"]}, "b3")
        assert live.wait(again, "b3")["state"] == "succeeded"
        for name in BROKERS:
            assert "RecordTooLarge" not in live.log(name)
            assert "Traceback" not in live.log(name)
