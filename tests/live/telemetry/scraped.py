"""A real Prometheus server for tests, and a small reader of the text format that doors answer with."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

UNTIL_SECONDS_MAX = 120.0
LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def missing(*programs: str) -> str:
    """Why a test cannot run here; empty if it can."""
    absent = [name for name in programs if shutil.which(name) is None]
    return f"there is no {', '.join(absent)} on this machine" if absent else ""


def samples_of(text: bytes) -> Samples:
    """Every sample of an answer, by name and sorted labels; a line that is none is an error."""
    found: Samples = {}
    for line in text.decode().splitlines():
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        labels = tuple(sorted(LABEL.findall(match[2] or "")))
        assert (match[1], labels) not in found, f"twice: {line}"
        found[match[1], labels] = float(match[3])
    return found


def total(found: Samples, name: str, **labels: str) -> float:
    """The sum of all samples of a name that have these labels."""
    return sum(
        value
        for (known, pairs), value in found.items()
        if known == name and set(labels.items()) <= set(pairs)
    )


class Prometheus:
    """A server that runs; asked over its own interface."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str) -> Any:
        """The data of an answer; None if there is none yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body)["data"] if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def targets(self) -> dict[str, tuple[str, str]]:
        """Each target's health and last error, by address."""
        data = self.ask("/api/v1/targets") or {"activeTargets": []}
        return {
            target["labels"]["instance"]: (target["health"], target["lastError"])
            for target in data["activeTargets"]
        }

    def value(self, expression: str) -> float | None:
        """What an expression without labels is now; None: nothing."""
        data = self.ask(f"/api/v1/query?query={quote(expression)}")
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def until(self, expression: str, wanted: float) -> None:
        """Wait until an expression has a value."""
        deadline = time.monotonic() + UNTIL_SECONDS_MAX
        while (found := self.value(expression)) != wanted:
            assert time.monotonic() < deadline, f"{expression} is {found}, not {wanted}: {self.targets()}"
            time.sleep(0.1)  # it scrapes when it does: there is nothing to await


@contextmanager
def prometheus(directory: Path, config: Path, prefix: list[str] | None = None) -> Iterator[Prometheus]:
    """A server with this configuration, gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [
        *(prefix or []),
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=config.parent)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(UNTIL_SECONDS_MAX)
