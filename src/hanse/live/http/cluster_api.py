"""The HTTP API of a cluster: its nodes, drains, and the output of its tasks.

A runner on a machine of its own serves the output of its tasks itself; the warden's server redirects clients
to it.
"""

from collections.abc import AsyncIterator, Mapping

from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from hanse.api.drain_facts import drain_facts
from hanse.api.hardware import DeviceAnswer, device_answer, device_answers, hardware_answer
from hanse.api.records import (
    ClusterDetail,
    DrainAnswer,
    DrainRequest,
    Health,
    NodeAnswer,
    Readiness,
    WaitAnswer,
    WaitsAnswer,
)
from hanse.core.warden.warden import Warden
from hanse.league.config import ClusterEntry
from hanse.live.backends.interface import Backend, OutputDroppedError, Stream
from hanse.live.http import operation_table as op
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.application import ApiApplication, DaemonContext, OpenApiDocument
from hanse.live.http.league_file_api import LeagueFileApi
from hanse.live.http.league_status import named_amounts
from hanse.live.http.operation_record import OCTETS, Operation
from hanse.live.http.responses import RUNNER_HEADER, RedirectError, RefusedError, json_answer, read_body
from hanse.live.http.revocation_sync import RevocationSync
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.shell import JournalledShell
from hanse.model.drains import reason_problem
from hanse.model.events import DrainRequested
from hanse.model.hardware.facts import HardwareFacts
from hanse.model.ids import index_of, parse_job, parse_task, task_text
from hanse.model.resources import dimensions_of
from hanse.security.wall_time import wall_now


class RunnerApi:
    """The operations of one runner: the output of the tasks of one backend."""

    table: tuple[Operation, ...] = op.RUNNER
    kind = "runner"

    def __init__(
        self, daemon: DaemonContext, entry: ClusterEntry, backend: Backend | None, membership: LeagueFileSync
    ) -> None:
        self.daemon = daemon
        self.entry = entry
        self.backend = backend
        self.revocations = RevocationSync(daemon)
        self._league_file = LeagueFileApi(membership)
        self.auth = self.revocations.create_auth()

    def application(self) -> ApiApplication:
        """Return the ASGI application."""
        routes: list[BaseRoute] = [*self.auth.routes(self.table, self.handlers())]
        return ApiApplication(self.auth, routes)

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handler of each operation. To add one: a line in ``operation_table`` and one here."""
        return {
            op.HEALTH: self._health,
            op.READY: self._ready,
            op.OPENAPI: OpenApiDocument(self.kind).answer,
            op.LOGS: self._logs,
            op.WAITS: self._waits,
            **self.revocations.handlers(),
            **self._league_file.handlers(),
        }

    async def _health(self, _: AdmittedRequest) -> Response:
        return json_answer(Health(ok=True))

    async def _ready(self, _: AdmittedRequest) -> Response:
        return json_answer(Readiness(ok=True))

    async def _logs(self, call: AdmittedRequest) -> Response:
        task = parse_task(call.text("task"))
        if task is None:
            raise self._no_output(call)
        node = call.optional_number("node")
        if node is not None and node >= len(self.entry.nodes):
            raise self._no_output(call)
        self._redirect_to_runner(call, node, "has this output")
        if self.backend is None:
            raise self._no_output(call)
        pieces = self.backend.output(
            task,
            call.number("attempt"),
            Stream(call.text("stream")),
            call.number("offset"),
            call.text("follow") == "1",
        )
        try:
            first = await anext(pieces, b"")
        except OutputDroppedError:
            message = f"the output of {call.text('task')} was deleted, as the oldest, to free disk space"
            raise RefusedError(404, "no_output", message, "'disk' and 'output' limit what is kept") from None
        except FileNotFoundError:
            raise self._no_output(call) from None
        return StreamingResponse(_prepend(first, pieces), media_type=OCTETS)

    async def _waits(self, call: AdmittedRequest) -> Response:
        job, node = parse_job(call.text("job")), call.optional_number("node")
        self._redirect_to_runner(call, node, "has the waiting tasks of this node")
        found = self.backend.pending_attempts(job) if self.backend is not None and job is not None else ()
        after, limit = call.optional_number("after"), call.number("limit")
        remaining = [wait for wait in found if after is None or index_of(wait.task) > after]
        answers = tuple(
            WaitAnswer(
                task_text(wait.task), wait.attempt, wait.node, wait.node_name, wait.requested_at, wait.reason
            )
            for wait in remaining[:limit]
        )
        more = str(index_of(remaining[limit - 1].task)) if len(remaining) > limit else None
        return json_answer(WaitsAnswer(answers, more, self._other_runners_nodes()))

    def _other_runners_nodes(self) -> tuple[int, ...]:
        """Return the first node of each runner on another machine."""
        first: dict[str, int] = {}
        for number, node in enumerate(self.entry.nodes):
            first.setdefault(node.runner, number)
        first.pop(self.daemon.identity.name, None)
        return tuple(first[runner.name] for runner in self.entry.runners if runner.name in first)

    def _redirect_to_runner(self, call: AdmittedRequest, node: int | None, why: str) -> None:
        """Redirect a request about a node of another machine to the runner there."""
        if node is None or node >= len(self.entry.nodes):
            return
        name = self.entry.nodes[node].runner
        for runner in self.entry.runners:
            if runner.name == name != self.daemon.identity.name:
                url = call.request.url
                location = f"https://{runner.door}{url.path}?{url.query}"
                raise RedirectError(RUNNER_HEADER, name, location, why)

    def _no_output(self, call: AdmittedRequest) -> RefusedError:
        hint = "output is kept for a limited time"
        if self.entry.runners:
            hint = "name the node with 'node': this cluster has several machines"
        return RefusedError(404, "no_output", f"there is no output of {call.text('task')} here", hint)


async def _prepend(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


class ClusterApi(RunnerApi):
    """The operations of one warden."""

    table = op.WARDEN
    kind = "warden"

    def __init__(
        self,
        daemon: DaemonContext,
        entry: ClusterEntry,
        machine: Warden,
        shell: JournalledShell,
        backend: Backend | None,
        membership: LeagueFileSync,
    ) -> None:
        super().__init__(daemon, entry, backend, membership)
        self._machine = machine
        self._shell = shell
        self.hardware: Mapping[str, HardwareFacts] = {}
        """Hardware by the names of the runners that have reported it."""

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handlers of every runner, and those of the warden."""
        return {**super().handlers(), op.CLUSTER: self._cluster, op.DRAIN: self._drain}

    async def _ready(self, _: AdmittedRequest) -> Response:
        """Answer ready unless the disk is behind."""
        ready = not self._shell.is_busy
        response = json_answer(Readiness(ready), 200 if ready else 503)
        if not ready:
            response.headers["Retry-After"] = "1"
        return response

    async def _cluster(self, call: AdmittedRequest) -> Response:
        after = call.text("after")
        first = int(after) + 1 if after else 0
        end = first + call.number("limit")
        dimensions = dimensions_of(tuple(node.capacity for node in self.entry.nodes))
        states, running = self._machine.states(), self._machine.drains.attempts_per_node()
        drains = drain_facts(self._machine.drains.active, self._shell.clock.now(), wall_now())
        closures = self.backend.closed_nodes() if self.backend is not None else {}
        nodes = [
            NodeAnswer(
                node=number,
                cluster=self.entry.name,
                capacity=named_amounts(node.capacity.vector(dimensions) or (), dimensions),
                free=named_amounts(free, dimensions),
                attributes=dict(node.attributes),
                up=up,
                draining=draining,
                running=running[number],
                runner=node.runner,
                withheld=self._withheld_reason(number, node.runner, closures),
                devices=self._devices(number),
            )
            for number, (node, (up, draining, free)) in enumerate(zip(self.entry.nodes, states, strict=True))
            if first <= number < end
        ]
        return json_answer(
            ClusterDetail(
                cluster=self.entry.name,
                nodes=tuple(nodes),
                running=self._machine.attempt_count,
                drains=drains if not after else (),
                backend=self.entry.backend.kind,
                warnings=tuple(getattr(self.backend, "warnings", ())),
                hardware={name: hardware_answer(facts) for name, facts in self.hardware.items()},
                next=str(end - 1) if end < len(self.entry.nodes) else None,
            )
        )

    def _devices(self, number: int) -> tuple[DeviceAnswer, ...]:
        """Return the devices of a node: with their tasks if the runner is here, else those that are
        listed."""
        node = self.entry.nodes[number]
        find_uses = getattr(self.backend, "device_uses", None)
        if node.runner != self.entry.own_runner or find_uses is None:
            return device_answers(node.devices)
        return tuple(
            device_answer(device, "" if task is None else task_text(task))
            for device, task in find_uses(number)
        )

    def _withheld_reason(self, node: int, runner: str, closures: Mapping[int, str]) -> str:
        """Return why a node is fully withheld. Of another runner only the fact is known, not the reason."""
        if runner == self.entry.own_runner:
            return closures.get(node, "")
        kept = self._machine.drains.is_withheld(node)
        return f"{runner} withholds the whole node; its log says why" if kept else ""

    async def _drain(self, call: AdmittedRequest) -> Response:
        body = await read_body(call.request, DrainRequest)
        count = len(self.entry.nodes)
        if any(node >= count for node in body.nodes):
            raise RefusedError(422, "bad_request", f"nodes must be numbers from 0 to {count - 1}")
        if body.whole == bool(body.nodes):
            hint = 'send {"nodes": [0, 3]} with node numbers, or {"whole": true} for all of the cluster'
            raise RefusedError(422, "bad_request", "name either nodes or the whole cluster", hint)
        nodes = tuple(dict.fromkeys(body.nodes))
        now, remaining = self._shell.clock.now(), (body.until or 0) - wall_now()
        problem = reason_problem(body.reason)
        if body.until is not None and (not body.drain or remaining <= 0):
            problem = "'until' must be in the future, and needs 'drain'"
        if problem is not None:
            raise RefusedError(422, "bad_request", problem)
        until = 0 if body.until is None else now + remaining
        self._shell.handle(DrainRequested(now, nodes, body.drain, call.peer.name, body.reason, until))
        await self._shell.wait_durable()
        return json_answer(DrainAnswer(self.entry.name, nodes or tuple(range(count)), body.drain, body.until))
