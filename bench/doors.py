"""The doors measured: ``python bench/doors.py --json FILE``.

Some identities ask a broker at a steady rate, each request timed; then they do it again while one more
identity floods the same door: at ten times the rate of one of them, at ten times that of all together, and as
fast as it can over many connections. The flood comes from a process of lowest priority, as if from another
machine: what it costs its sender is not the door's doing. What counts is the ratio of the others' 99th
percentiles, flooded to calm. Beside it stands a control: the same flood at the door of another league on the
same machine, which has nothing to do with the others but the processors; ``door`` is the ratio of flooded to
that, and so what the door itself does to them. The three kinds of runs alternate, and medians of the ratios
are told, because machines are noisy.
"""

import argparse
import http.client
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.live.harness import LiveLeague, running

from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 64}]}]
"""
OTHERS = 4
RATE = 10.0
"""Requests a second of each of the others."""
SECONDS = 8.0
ROUNDS = 3
FLOODS = {
    "ten_times_one": ("--rate", str(10 * RATE), "--connections", "8"),
    "ten_times_all": ("--rate", str(10 * OTHERS * RATE), "--connections", "16"),
    "unbounded": ("--rate", "0", "--connections", "32"),
}
JOB = json.dumps({"jobs": [{"command": "true"}]})


class Asker(threading.Thread):
    """Somebody who asks at a steady rate (0: without a pause) and notes how long each answer took."""

    def __init__(self, place: tuple[str, int, str, str], rate: float, end: float) -> None:
        super().__init__(daemon=True)
        self._host, self._port, self._authority, self._token = place
        self._pause = 1.0 / rate if rate else 0.0
        self._end = end
        self.seconds: list[float] = []
        self.statuses: dict[int, int] = {}

    def run(self) -> None:
        """Ask until the time is over: now for a list, now with a job."""
        context = ssl.create_default_context(cafile=self._authority)
        door = http.client.HTTPSConnection(self._host, self._port, context=context, timeout=60)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        due = time.monotonic()
        number = 0
        while (now := time.monotonic()) < self._end:
            if now < due:
                time.sleep(due - now)
            begin = time.perf_counter()
            number += 1
            if number % 2:
                door.request("GET", "/v1/jobs?limit=10", headers=headers)
            else:
                door.request("POST", "/v1/jobs", JOB, headers)
            answer = door.getresponse()
            answer.read()
            self.seconds.append(time.perf_counter() - begin)
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
            due += self._pause
        door.close()


def flood(options: argparse.Namespace) -> None:
    """What the flooding process does: print how it was answered."""
    end = time.monotonic() + options.seconds
    place = (options.host, options.port, options.authority, options.token)
    askers = [Asker(place, options.rate / options.connections, end) for _ in range(options.connections)]
    for asker in askers:
        asker.start()
    total: dict[int, int] = {}
    for asker in askers:
        asker.join()
        for status, count in asker.statuses.items():
            total[status] = total.get(status, 0) + count
    print(json.dumps(total))


def measured(live: LiveLeague, tokens: list[str]) -> list[float]:
    """How long the others' requests took, one run, sorted."""
    door = live.league.broker("b1").door
    end = time.monotonic() + SECONDS
    authority = str(live.credentials.authority_path)
    askers = [Asker((door.host, door.port, authority, token), RATE, end) for token in tokens]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
        assert set(asker.statuses) == {200}, asker.statuses
    return sorted(second for asker in askers for second in asker.seconds)


class Flood(NamedTuple):
    """Whose door is flooded, by whom, and how."""

    at: LiveLeague
    token: str
    words: tuple[str, ...]


def flooded(live: LiveLeague, tokens: list[str], wave: Flood) -> tuple[list[float], Any]:
    """The same while one more identity floods this league or another one."""
    door = wave.at.league.broker("b1").door
    command = [
        *(
            "nice",
            "-n",
            "19",
            sys.executable,
            __file__,
            "--flood",
            "--host",
            door.host,
            "--port",
            str(door.port),
        ),
        *("--authority", str(wave.at.credentials.authority_path), "--token", wave.token),
        *("--seconds", str(SECONDS + 2.0), *wave.words),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own words
        time.sleep(1.0)  # the flood has begun
        seconds = measured(live, tokens)
        said, _ = process.communicate()
    return seconds, json.loads(said)


def percentile(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    return round(1_000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))], 2)


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=tuple(FLOODS), action="append")
    parser.add_argument("--flood", action="store_true")
    for name in ("--host", "--authority", "--token"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int)
    parser.add_argument("--connections", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    if options.flood:
        flood(options)
        return
    found: dict[str, Any] = {"others": OTHERS, "rate_each": RATE, "seconds": SECONDS, "floods": {}}
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        Path(name).chmod(0o755)
        with running(Path(name) / "home", LEAGUE) as live, running(Path(name) / "away", LEAGUE) as away:
            tokens = [token_of(live, f"other-{n}") for n in range(OTHERS)]
            eves = {"here": (live, token_of(live, "eve")), "elsewhere": (away, token_of(away, "eve"))}
            measured(live, tokens)  # warm
            for kind in options.only or FLOODS:
                waves = {where: Flood(*eve, FLOODS[kind]) for where, eve in eves.items()}
                found["floods"][kind] = compared(live, tokens, waves)
    text = json.dumps(found, indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def token_of(live: LiveLeague, name: str) -> str:
    """An access token of somebody who may submit."""
    return AccessTokenIssuer(live.home, Authority.open(live.home.authority)).create(Role.SUBMITTER, name, 1)


def compared(live: LiveLeague, tokens: list[str], waves: dict[str, Flood]) -> dict[str, Any]:
    """Calm and flooded runs in turn."""
    runs: dict[str, list[list[float]]] = {"calm": [], **{where: [] for where in waves}}
    answered: dict[str, dict[str, int]] = {where: {} for where in waves}
    for _ in range(ROUNDS):
        runs["calm"].append(measured(live, tokens))
        for where, wave in waves.items():
            seconds, statuses = flooded(live, tokens, wave)
            runs[where].append(seconds)
            for status, count in statuses.items():
                answered[where][status] = answered[where].get(status, 0) + count
    p99 = {where: [percentile(seconds, 0.99) for seconds in each] for where, each in runs.items()}

    def ratio(above: str, below: str) -> float:
        return round(statistics.median(a / b for a, b in zip(p99[above], p99[below], strict=True)), 2)

    return {
        "p99_ms": p99,
        "p50_ms": {where: [percentile(seconds, 0.5) for seconds in each] for where, each in runs.items()},
        "p99_ratio_median": ratio("here", "calm"),
        "p99_ratio_elsewhere_median": ratio("elsewhere", "calm"),
        "p99_ratio_door_median": ratio("here", "elsewhere"),
        "flood_answers": answered,
    }


if __name__ == "__main__":
    main()
