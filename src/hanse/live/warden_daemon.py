"""Process of a warden: the machine in its shell, the runner of this machine's nodes, the HTTPS server."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.warden.warden import Warden
from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import ClusterEntry, LeagueConfig
from hanse.live.backends.factory import make_backend
from hanse.live.backends.interface import Backend
from hanse.live.config.config_history import member_settings, settings_problem, warden_settings
from hanse.live.config.discovered_nodes import discover_nodes
from hanse.live.config.home_permissions import backend_directory_problem
from hanse.live.daemon import Daemon, make_peer
from hanse.live.disk_guard import DiskGuard
from hanse.live.disk_space import DiskSpaceCheck
from hanse.live.hardware.hardware_reports import HardwareReports
from hanse.live.hardware.machine import this_machine
from hanse.live.hardware.node_attributes import with_detected_attributes
from hanse.live.high_water_mark import keep_high_water_mark, write_final_high_water_mark
from hanse.live.history_check import HISTORY_MESSAGES, HistoryCheck
from hanse.live.http.cluster_api import ClusterApi
from hanse.live.journal.errors import RecordTooLarge
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.recovery import recover
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import ValidationContext, warden_validation_context
from hanse.live.runner_shell import RunnerShell
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.json_logs import log_fields
from hanse.live.telemetry.warden_metrics import WardenMetrics
from hanse.model.effects import Effect, RecordDecision, SendMessage
from hanse.model.events import Booted, MessageReceived
from hanse.model.messages import Envelope, OpenSession
from hanse.security.identity import Identity, Role

SEED_BITS: Final = 62
log = logging.getLogger(__name__)


class WardenDaemon(Daemon):
    """Process of one cluster's warden, with the runner of the nodes on its machine."""

    def __init__(
        self, home: Path, league: LeagueConfig, name: str, digests: bool = False, founding: bool = False
    ) -> None:
        self.entry = league.cluster(name)
        identity = Identity(league.name, Role.WARDEN, name)
        super().__init__(home, league, identity, self.entry.address, self.entry.door)
        self._digests = self.directory / "commands.digest" if digests else None
        self._founding = founding
        self.machine: Warden
        self.shell: JournalledShell | None = None
        self.runner_shell: RunnerShell | None = None
        self.hardware: HardwareReports

    def peers(self) -> Mapping[str, Peer]:
        """Return every broker, and the runners on other machines."""
        league = self.league
        brokers = {
            entry.name: make_peer(league, Role.BROKER, entry.name, entry.address)
            for entry in league.serving_brokers
        }
        runners = {
            entry.name: make_peer(league, Role.RUNNER, entry.name, entry.address)
            for entry in self.entry.runners
        }
        return {**brokers, **runners}

    def make_validation_context(self) -> ValidationContext:
        """Return the context that the configuration gives."""
        return warden_validation_context(self.league.warden_config(self.identity.name))

    def _set_entry(self, entry: ClusterEntry) -> None:
        """Use the cluster with the nodes that were discovered."""
        if entry is self.entry:
            return
        others = tuple(entry if other.name == entry.name else other for other in self.league.clusters)
        self.league = msgspec.structs.replace(self.league, clusters=others)
        self.entry = entry
        config = self.league.warden_config(entry.name)
        self.validation_context.nodes, self.validation_context.runners = (
            len(config.nodes),
            warden_validation_context(config).runners,
        )

    async def _find_nodes(self) -> ClusterEntry:
        """Return the cluster with its nodes, and with the attributes that their hardware gives them."""
        self.hardware = HardwareReports(self.directory)
        if BACKENDS.get(self.entry.backend.kind).runs_on_its_machine:
            self.hardware.by_runner[self.entry.own_runner] = await asyncio.to_thread(this_machine)
        entry = await discover_nodes(self.entry, self.directory)
        return with_detected_attributes(entry, self.hardware.by_runner)

    async def start(self) -> None:
        """Recover from disk, reconcile with the backend, start the HTTPS server, then begin to take part."""
        self._set_entry(await self._find_nodes())
        settings = warden_settings(self.league, self.identity.name)
        recovered = recover(self.directory, settings, on_progress=self.start_report.report_replayed)
        assert isinstance(recovered.machine, Warden)
        self.machine = recovered.machine
        log.info("recovered", extra=log_fields(replayed=recovered.replayed, cut=recovered.cut_bytes))
        clock = recovered.clock
        self.validation_context.clock = clock.now
        self.metrics = metrics = WardenMetrics(self, self.machine, self.entry, recovered.journal)
        self.shell = shell = JournalledShell(
            self.machine,
            clock,
            self._perform,
            recovered.journal,
            self.fail,
            metrics.on_event_durable,
            self._digests,
        )
        shell.on_performed = self.transport.flush
        metrics.journal.longest_event = lambda: shell.longest_seconds
        witnesses = () if self._founding else self.peers()
        self._history_check = history_check = HistoryCheck(
            self.directory, self.machine.links, witnesses, self.transport.send
        )
        self.receivers[self.identity.name] = history_check.on_message_before_start
        await self.transport.listen(self.address.host, self.address.port)
        await history_check.ask()
        self.receivers[self.identity.name] = self._on_message
        self.run_in_background(history_check.keep_asking())
        shell.handle(Booted(clock.now(), self.machine.epoch + 1, secrets.randbits(SEED_BITS)))
        runner = self.entry.own_runner
        backend: Backend | None = None
        if any(node.runner == runner for node in self.entry.nodes):
            backend = make_backend(self.entry, self.directory)
            metrics.tasks_room = lambda: getattr(backend, "disk_space", None)
            config = msgspec.structs.replace(
                self.league.runner_config(self.entry, runner), hardware=self.hardware.by_runner.get(runner)
            )
            self.runner_shell = RunnerShell(config, backend, clock, self.directory, self.send)
            self.receivers[runner] = self.runner_shell.on_message
            await self.runner_shell.start()
        league_files = LeagueFileSync(
            self, self._settings_problem, self._count_unfinished, self.machine.shards, self._is_drained
        )
        api = ClusterApi(self, self.entry, self.machine, shell, backend, league_files)
        api.hardware = self.hardware.by_runner
        await self.serve(api.application(), api.revocations, league_files)
        self.run_in_background(keep_high_water_mark(self.directory, recovered.journal))
        self.run_in_background(DiskGuard(self.machine, shell, DiskSpaceCheck(self.directory)).run())

    def _count_unfinished(self) -> int:
        """Count attempts that run, and ends that their broker has not acknowledged."""
        return self.machine.attempt_count + len(self.machine.attempt_tracker.unacked_ends)

    def _is_drained(self) -> bool:
        """True if every node is drained."""
        return all(drains for _, drains, _ in self.machine.states())

    def _settings_problem(self, league: LeagueConfig) -> str:
        problem = backend_directory_problem(league, self.identity.name)
        if problem is not None:
            return problem
        if not league.cluster(self.identity.name).nodes:
            return ""  # the backend reports the nodes when the warden starts
        return settings_problem(self.machine, member_settings(league, self.identity.name))

    async def close(self) -> None:
        """Close the HTTPS server first and the journal last. Tasks go on."""
        await super().close()
        if self.runner_shell is not None:
            await self.runner_shell.close()
        if self.shell is not None:
            self.shell.close()
            write_final_high_water_mark(self.directory, self.shell.journal)

    def _on_message(self, envelope: Envelope) -> None:
        shell = self.shell
        assert shell is not None
        history_check = self._history_check
        if (history_check.unanswered or type(envelope.body) in HISTORY_MESSAGES) and history_check.intercept(
            envelope
        ):
            return
        if type(envelope.body) is OpenSession and envelope.body.hardware is not None:
            self.hardware.note(envelope.source, envelope.body.hardware)
        if shell.is_full:
            self.count("dropped_disk_behind")
            return
        try:
            shell.handle(MessageReceived(shell.clock.now(), envelope))
        except RecordTooLarge as error:  # no member sends such a message
            self.count("dropped_too_large")
            log.warning("dropped a message: %s", error, extra=log_fields(source=envelope.source))

    def _perform(self, effect: Effect) -> None:
        if type(effect) is SendMessage:
            if effect.envelope.target not in self._history_check.unanswered:
                self.send(effect.envelope)
        else:
            assert type(effect) is RecordDecision, f"a warden has no effect {effect}"
