"""What one broker has learned of elastic tasks sizes another's jobs, also after a restart of both."""

import re
import signal
import time

from tests.live.harness import WAIT_SECONDS_MAX, LiveLeague, open_directory, running

LEAGUE = """
policy: {sizer: priced}
brokers: [{name: b1}, {name: b2}]
clusters:
  - name: north
    nodes: [{cpus: 1, memory: 1GiB}]
"""
LESSONS = 5
QUICK = {"name": "quick", "command": "true", "cpus": "0.25..1"}
KNOWN_SECONDS_MAX = 0.2
"""Who knows nothing believes in a third of a second at least; really it takes a few milliseconds."""


def believed(live: LiveLeague, broker: str) -> float:
    """Seconds that a broker believes such a task to take. None runs for this: nothing is learned from it."""
    job = live.submit(QUICK, broker)
    told = " ".join(live.broker(broker).ask("GET", f"/v1/jobs/{job}/why")["sentences"])
    live.broker(broker).ask("POST", f"/v1/jobs/{job}/cancel")
    live.wait(job, broker)
    found = re.search(r"each: ([\d.]+) s believed", told)
    assert found is not None, told
    return float(found[1])


def hold(live: LiveLeague) -> str:
    """A job that has the whole cluster for itself, so that nothing else runs."""
    job = live.submit({"name": "holds", "cpus": "1", "command": ["/bin/sleep", "600"]}, "b1")
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not live.broker("b1").ask("GET", f"/v1/jobs/{job}")["row"]["running"]:
        assert time.monotonic() < deadline, "it never ran"
        time.sleep(0.02)  # the outside world: there is nothing to await
    return job


def test_a_broker_sizes_by_what_its_peer_has_learned() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        holds = hold(live)
        assert believed(live, "b2") > KNOWN_SECONDS_MAX
        live.broker("b1").ask("POST", f"/v1/jobs/{holds}/cancel")
        live.wait(holds, "b1")
        for _ in range(LESSONS):
            live.wait(live.submit(QUICK, "b1"), "b1")
        hold(live)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while believed(live, "b2") > KNOWN_SECONDS_MAX:
            assert time.monotonic() < deadline, "b2 never heard"
            time.sleep(0.1)  # the outside world: it comes with a beat
        for name in ("b1", "b2"):
            live.kill(name, signal.SIGKILL)
        live.start("b2")
        assert believed(live, "b2") < KNOWN_SECONDS_MAX, "it remembers, although its peer is away"
