"""Process of a warden: the machine in its shell, the runner of this machine's nodes, the HTTPS server."""

import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.warden.warden import Warden
from hanse.live.backends.factory import make_backend
from hanse.live.backends.interface import Backend
from hanse.live.config.config_history import WardenSettings, objection, settings_of
from hanse.live.config.home_permissions import elsewhere_problem
from hanse.live.config.league import ClusterEntry, League
from hanse.live.config.node_discovery import take_stock
from hanse.live.daemon import Daemon, peer_of
from hanse.live.disk_guard import DiskGuard
from hanse.live.disk_space import DiskSpace
from hanse.live.high_water_mark import end_reached, keep_reached
from hanse.live.history_check import ABOUT_THE_PAST, Recollection
from hanse.live.http.cluster_api import ClusterDoor
from hanse.live.http.server import Door
from hanse.live.journal.errors import RecordTooLarge
from hanse.live.membership.membership import Membership
from hanse.live.recovery import recover
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import Limits, warden_limits
from hanse.live.runner_host import RunnerHost
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.json_logs import fields
from hanse.live.telemetry.metrics_endpoint import metrics_route
from hanse.live.telemetry.warden_metrics import WardenWatch
from hanse.model.effects import Effect, RecordDecision, SendMessage
from hanse.model.events import Booted, MessageReceived
from hanse.model.messages import Envelope
from hanse.security.identity import Identity, Role

SEED_BITS: Final = 62
log = logging.getLogger(__name__)


class WardenDaemon(Daemon):
    """Process of one cluster's warden, with the runner of the nodes on its machine."""

    def __init__(
        self, home: Path, league: League, name: str, digests: bool = False, founding: bool = False
    ) -> None:
        self.entry = league.cluster(name)
        identity = Identity(league.name, Role.WARDEN, name)
        super().__init__(home, league, identity, self.entry.address, self.entry.door)
        self._digests = self.directory / "commands.digest" if digests else None
        self._founding = founding
        self.machine: Warden
        self.shell: JournalledShell | None = None
        self.host: RunnerHost | None = None

    def peers(self) -> Mapping[str, Peer]:
        """Return every broker, and the runners on other machines."""
        league = self.league
        brokers = {
            entry.name: peer_of(league, Role.BROKER, entry.name, entry.address)
            for entry in league.serving_brokers
        }
        runners = {
            entry.name: peer_of(league, Role.RUNNER, entry.name, entry.address)
            for entry in self.entry.runners
        }
        return {**brokers, **runners}

    def make_limits(self) -> Limits:
        """Return the context that the configuration gives."""
        return warden_limits(self.league.warden_config(self.identity.name))

    def _know(self, entry: ClusterEntry) -> None:
        """Use the cluster with the nodes that were discovered."""
        if entry is self.entry:
            return
        others = tuple(entry if other.name == entry.name else other for other in self.league.clusters)
        self.league = msgspec.structs.replace(self.league, clusters=others)
        self.entry = entry
        config = self.league.warden_config(entry.name)
        self.limits.nodes, self.limits.runners = len(config.nodes), warden_limits(config).runners

    async def start(self) -> None:
        """Recover from disk, reconcile with the backend, start the HTTPS server, then begin to take part."""
        self._know(await take_stock(self.entry, self.directory))
        settings = WardenSettings(self.league.warden_config(self.identity.name))
        recovered = recover(self.directory, settings, progress=self.report.replayed)
        assert isinstance(recovered.machine, Warden)
        self.machine = recovered.machine
        log.info("recovered", extra=fields(replayed=recovered.replayed, cut=recovered.cut))
        clock = recovered.clock
        self.limits.clock = clock.now
        self.watch = watch = WardenWatch(self, self.machine, self.entry, recovered.journal)
        self.shell = shell = JournalledShell(
            self.machine, clock, self._perform, recovered.journal, self.fail, watch.told, self._digests
        )
        shell.performed = self.wire.flush
        watch.journal.longest = lambda: shell.longest
        witnesses = () if self._founding else self.peers()
        self._past = past = Recollection(self.directory, self.machine.links, witnesses, self.wire.send)
        self.receivers[self.identity.name] = past.hear
        await self.wire.listen(self.address.host, self.address.port)
        await past.ask()
        self.receivers[self.identity.name] = self._receive
        self.chore(past.keep())
        shell.take(Booted(clock.now(), self.machine.epoch + 1, secrets.randbits(SEED_BITS)))
        runner = self.entry.own_runner
        backend: Backend | None = None
        if any(node.runner == runner for node in self.entry.nodes):
            backend = make_backend(self.entry, self.directory)
            watch.tasks_room = lambda: getattr(backend, "room", None)
            config = self.league.runner_config(self.entry, runner)
            self.host = RunnerHost(config, backend, clock, self.directory, self.send)
            self.receivers[runner] = self.host.receive
            await self.host.start()
        membership = Membership(self, self._objection, self._unfinished, self.machine.shards)
        watch.league_file = membership.seen
        door = ClusterDoor(self, self.entry, self.machine, shell, backend, membership)
        application = door.application()
        application.router.routes.append(metrics_route(watch, self.count))
        self.door = Door(watch.door.around(application), self.credentials)
        await self.door.listen(self.door_address)
        self.chore(door.revocations.keep())
        self.chore(keep_reached(self.directory, recovered.journal))
        self.chore(membership.keep())
        self.chore(DiskGuard(self.machine, shell, DiskSpace(self.directory)).keep())

    def _unfinished(self) -> int:
        """Count attempts that run, and ends that their broker has not acknowledged."""
        return self.machine.attempts + len(self.machine.attempt_tracker.unacked_ends)

    def _objection(self, league: League) -> str:
        problem = elsewhere_problem(league, self.identity.name)
        if problem is not None:
            return problem
        if not league.cluster(self.identity.name).nodes:
            return ""  # the backend reports the nodes when the warden starts
        return objection(self.machine, settings_of(league, self.identity.name))

    async def close(self) -> None:
        """Close the HTTPS server first and the journal last. Tasks go on."""
        await super().close()
        if self.host is not None:
            await self.host.close()
        if self.shell is not None:
            self.shell.close()
            end_reached(self.directory, self.shell.journal)

    def _receive(self, envelope: Envelope) -> None:
        shell = self.shell
        assert shell is not None
        past = self._past
        if (past.unheard or type(envelope.body) in ABOUT_THE_PAST) and past.keeps(envelope):
            return
        if shell.full:
            self.count("dropped_disk_behind")
            return
        try:
            shell.take(MessageReceived(shell.clock.now(), envelope))
        except RecordTooLarge as error:  # no member sends such a message
            self.count("dropped_too_large")
            log.warning("dropped a message: %s", error, extra=fields(source=envelope.source))

    def _perform(self, command: Effect) -> None:
        if type(command) is SendMessage:
            if command.envelope.target not in self._past.unheard:
                self.send(command.envelope)
        else:
            assert type(command) is RecordDecision, f"a warden has no effect {command}"
