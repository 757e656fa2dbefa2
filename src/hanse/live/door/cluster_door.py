"""A cluster's door: its nodes, draining them, and what its tasks have written.

A runner on a machine of its own has a door too, for the output of its tasks; its warden's door sends whoever
asks for that there.
"""

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hanse.core.warden import Warden
from hanse.live.backends.interface import Backend, Stream
from hanse.live.door.answers import (
    OPERATE,
    RUNNER_HEADER,
    VIEW,
    ElsewhereError,
    RefusedError,
    body_of,
    guarded,
    json_answer,
    number_of,
)
from hanse.live.identity.identity import Identity
from hanse.live.league import ClusterEntry, League
from hanse.live.shell import JournalledShell
from hanse.model.events import DrainRequested
from hanse.model.ids import parse_task
from hanse.model.resources import dimensions_of

ATTEMPT_MAX: Final = 1 << 40


class Host(Protocol):
    """What a door needs of its daemon."""

    league: League
    identity: Identity
    counters: dict[str, int]

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...


class RunnerDoor:
    """The output of the tasks of one backend."""

    def __init__(self, host: Host, entry: ClusterEntry, backend: Backend | None) -> None:
        self.host = host
        self.entry = entry
        self.backend = backend

    def routes(self) -> list[Route]:
        """What is asked of every machine that runs tasks."""
        return [
            Route("/healthz", self._health),
            Route("/v1/logs/{task}", guarded(VIEW, self._logs, self.host.count)),
        ]

    def application(self) -> Starlette:
        """The ASGI application."""
        return Starlette(routes=self.routes())

    async def _health(self, _: Request) -> Response:
        return json_answer({"ok": True})

    async def _logs(self, request: Request, _: Identity) -> Response:
        task = parse_task(request.path_params["task"])
        if task is None:
            raise RefusedError(422, "bad_task_id", "a task looks like 1-7.0")
        stream = request.query_params.get("stream", "stdout")
        if stream not in tuple(Stream):
            raise RefusedError(422, "bad_parameter", "stream is stdout or stderr")
        self._leave_to_runner(request)
        if self.backend is None:
            raise self._no_output(request)
        pieces = self.backend.output(
            task,
            number_of(request, "attempt", 0, 0, ATTEMPT_MAX),
            Stream(stream),
            number_of(request, "offset", 0, 0, 1 << 62),
            request.query_params.get("follow") == "1",
        )
        try:
            first = await anext(pieces, b"")
        except FileNotFoundError:
            raise self._no_output(request) from None
        return StreamingResponse(_after(first, pieces), media_type="application/octet-stream")

    def _leave_to_runner(self, request: Request) -> None:
        """Send whoever asks about a node of another machine to the runner there."""
        most = len(self.entry.nodes) - 1
        node = number_of(request, "node", 0, 0, most) if "node" in request.query_params else None
        name = "" if node is None else self.entry.nodes[node].runner
        for runner in self.entry.runners:
            if runner.name == name != self.host.identity.name:
                location = f"https://{runner.door}{request.url.path}?{request.url.query}"
                raise ElsewhereError(RUNNER_HEADER, name, location, "has this output")

    def _no_output(self, request: Request) -> RefusedError:
        text = request.path_params["task"]
        hint = "output is kept for a limited time"
        if self.entry.runners:
            hint = "say which node it ran on: this cluster has several machines"
        return RefusedError(404, "no_output", f"there is no output of {text} here", hint)


async def _after(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


class ClusterDoor(RunnerDoor):
    """The routes of one warden."""

    def __init__(
        self,
        host: Host,
        entry: ClusterEntry,
        machine: Warden,
        shell: JournalledShell,
        backend: Backend | None,
    ) -> None:
        super().__init__(host, entry, backend)
        self._machine = machine
        self._shell = shell

    def routes(self) -> list[Route]:
        """Those of every runner, and the cluster's own."""
        count = self.host.count
        return [
            *super().routes(),
            Route("/v1/cluster", guarded(VIEW, self._cluster, count)),
            Route("/v1/drain", guarded(OPERATE, self._drain, count), methods=["POST"]),
        ]

    async def _cluster(self, _: Request, __: Identity) -> Response:
        return json_answer(self._answer())

    def _answer(self) -> dict[str, Any]:
        dimensions = dimensions_of(tuple(node.capacity for node in self.entry.nodes))
        nodes = [
            {
                "node": number,
                "capacity": _amounts(node.capacity.vector(dimensions) or (), dimensions),
                "free": _amounts(free, dimensions),
                "attributes": dict(node.attributes),
                "up": up,
                "draining": draining,
                "runner": node.runner,
            }
            for number, (node, (up, draining, free)) in enumerate(
                zip(self.entry.nodes, self._machine.states(), strict=True)
            )
        ]
        return {
            "cluster": self.entry.name,
            "backend": str(self.entry.backend.kind),
            "warnings": list(getattr(self.backend, "warnings", ())),
            "running": self._machine.attempts,
            "nodes": nodes,
        }

    async def _drain(self, request: Request, _: Identity) -> Response:
        body = await body_of(request)
        nodes = body.get("nodes", []) if isinstance(body, dict) else None
        drain = body.get("drain", True) if isinstance(body, dict) else None
        most = len(self.entry.nodes)
        if (
            not isinstance(nodes, list)
            or not isinstance(drain, bool)
            or not all(
                isinstance(node, int) and not isinstance(node, bool) and 0 <= node < most for node in nodes
            )
        ):
            rule = f'the body is {{"nodes": [...], "drain": true}} with node numbers from 0 to {most - 1}'
            raise RefusedError(422, "bad_request", rule)
        self._shell.take(DrainRequested(self._shell.clock.now(), tuple(dict.fromkeys(nodes)), drain))
        await self._shell.safe()
        return json_answer({"cluster": self.entry.name, "nodes": nodes or list(range(most)), "drain": drain})


def _amounts(vector: tuple[int, ...], dimensions: tuple[str, ...]) -> dict[str, Any]:
    amounts = dict(zip(dimensions, vector, strict=False))
    return {
        "cpu": amounts.get("cpu", 0),
        "memory": amounts.get("memory", 0),
        "gpu": amounts.get("gpu", 0),
        "custom": {name: amounts.get(name, 0) for name in dimensions[3:]},
    }
