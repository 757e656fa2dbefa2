"""Process of a runner on a machine that is not its warden's."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import LeagueConfig
from hanse.live.backends.factory import make_backend
from hanse.live.clock import Clock
from hanse.live.config.home_permissions import backend_directory_problem
from hanse.live.daemon import Daemon, make_peer
from hanse.live.hardware.machine import this_machine
from hanse.live.http.cluster_api import RunnerApi
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.recovery import CLOCK_FILE
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import ValidationContext, runner_validation_context
from hanse.live.runner_shell import RunnerShell
from hanse.live.telemetry.warden_metrics import RunnerMetrics
from hanse.security.identity import Identity, Role


class RunnerDaemon(Daemon):
    """Process of one runner."""

    def __init__(self, home: Path, league: LeagueConfig, name: str) -> None:
        self.cluster, entry = league.cluster_of_runner(name)
        super().__init__(home, league, Identity(league.name, Role.RUNNER, name), entry.address, entry.door)
        self.runner_shell: RunnerShell | None = None

    def peers(self) -> Mapping[str, Peer]:
        """Return the warden."""
        return {
            self.cluster.name: make_peer(self.league, Role.WARDEN, self.cluster.name, self.cluster.address)
        }

    def make_validation_context(self) -> ValidationContext:
        """Return the context that the configuration gives."""
        return runner_validation_context(self.league.runner_config(self.cluster, self.identity.name))

    async def start(self) -> None:
        """Reconcile with the backend, and open a session with the warden."""
        name = self.identity.name
        backend = make_backend(self.cluster, self.directory)
        clock = Clock.resume(self.directory / CLOCK_FILE, 0, 0)
        self.validation_context.clock = clock.now
        config = self.league.runner_config(self.cluster, name)
        if BACKENDS.get(self.cluster.backend.kind).runs_on_its_machine:
            config = msgspec.structs.replace(config, hardware=this_machine())
        self.metrics = metrics = RunnerMetrics(self, self.send)
        metrics.tasks_room = lambda: getattr(backend, "disk_space", None)
        self.runner_shell = RunnerShell(config, backend, clock, self.directory, metrics.send)
        self.receivers[name] = self.runner_shell.on_message
        await self.transport.listen(self.address.host, self.address.port)
        await self.runner_shell.start()
        league_files = LeagueFileSync(
            self, lambda league: backend_directory_problem(league, self.identity.name) or ""
        )
        api = RunnerApi(self, self.cluster, backend, league_files)
        await self.serve(api.application(), api.revocations, league_files)

    async def close(self) -> None:
        """Close all; tasks go on under their watchdogs."""
        await super().close()
        if self.runner_shell is not None:
            await self.runner_shell.close()
