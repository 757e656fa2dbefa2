"""Process of a runner on a machine that is not its warden's."""

from collections.abc import Mapping
from pathlib import Path

from hanse.live.backends.factory import make_backend
from hanse.live.clock import Clock
from hanse.live.config.home_permissions import elsewhere_problem
from hanse.live.config.league import League
from hanse.live.daemon import Daemon, peer_of
from hanse.live.http.cluster_api import RunnerDoor
from hanse.live.http.server import Door
from hanse.live.membership.membership import Membership
from hanse.live.recovery import CLOCK
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import Limits, runner_limits
from hanse.live.runner_host import RunnerHost
from hanse.live.telemetry.metrics_endpoint import metrics_route
from hanse.live.telemetry.warden_metrics import RunnerWatch
from hanse.security.identity import Identity, Role


class RunnerDaemon(Daemon):
    """Process of one runner."""

    def __init__(self, home: Path, league: League, name: str) -> None:
        self.cluster, entry = league.cluster_of_runner(name)
        super().__init__(home, league, Identity(league.name, Role.RUNNER, name), entry.address, entry.door)
        self.host: RunnerHost | None = None

    def peers(self) -> Mapping[str, Peer]:
        """Return the warden."""
        return {self.cluster.name: peer_of(self.league, Role.WARDEN, self.cluster.name, self.cluster.address)}

    def make_limits(self) -> Limits:
        """Return the context that the configuration gives."""
        return runner_limits(self.league.runner_config(self.cluster, self.identity.name))

    async def start(self) -> None:
        """Reconcile with the backend, and open a session with the warden."""
        name = self.identity.name
        backend = make_backend(self.cluster, self.directory)
        clock = Clock.resume(self.directory / CLOCK, 0, 0)
        self.limits.clock = clock.now
        config = self.league.runner_config(self.cluster, name)
        self.watch = watch = RunnerWatch(self, self.send)
        watch.tasks_room = lambda: getattr(backend, "room", None)
        self.host = RunnerHost(config, backend, clock, self.directory, watch.send)
        self.receivers[name] = self.host.receive
        await self.wire.listen(self.address.host, self.address.port)
        await self.host.start()
        membership = Membership(self, lambda league: elsewhere_problem(league, self.identity.name) or "")
        watch.league_file = membership.seen
        door = RunnerDoor(self, self.cluster, backend, membership)
        application = door.application()
        application.router.routes.append(metrics_route(watch, self.count))
        self.door = Door(watch.door.around(application), self.credentials)
        await self.door.listen(self.door_address)
        self.chore(door.revocations.keep())
        self.chore(membership.keep())

    async def close(self) -> None:
        """Close all; tasks go on under their watchdogs."""
        await super().close()
        if self.host is not None:
            await self.host.close()
