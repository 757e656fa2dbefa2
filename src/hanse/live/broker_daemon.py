"""Process of a broker: the machine in its shell, the read model, the transport and the HTTPS server."""

import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hanse.core.broker.broker import Broker
from hanse.league.config import LeagueConfig
from hanse.live.ca.replication import AuthorityCopy
from hanse.live.clock import Clock
from hanse.live.config.config_history import (
    BrokerSettings,
    MachineReplay,
    member_settings,
    read_config_history,
    settings_problem,
)
from hanse.live.daemon import Daemon, make_peer
from hanse.live.high_water_mark import (
    keep_high_water_mark,
    refuse_journal_behind,
    write_final_high_water_mark,
)
from hanse.live.history_check import HISTORY_MESSAGES, HistoryCheck
from hanse.live.http.broker_api import BrokerApi
from hanse.live.http.enrollment_api import EnrollmentApi
from hanse.live.journal.errors import RecordTooLarge
from hanse.live.journal.journal import Journal
from hanse.live.journal.reading import read_history
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.pending_requests import PendingRequests
from hanse.live.policy_process.host import PolicyProcess
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.recovery import JOURNAL_DIRECTORY, decode_event, recover
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import ValidationContext, broker_validation_context
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.broker_metrics import BrokerMetrics
from hanse.live.telemetry.job_metrics import unfinished_jobs
from hanse.live.telemetry.json_logs import log_fields
from hanse.model.advice import Advice
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestAdvice,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
)
from hanse.model.events import AdviceReceived, Booted, MessageReceived
from hanse.model.messages import Envelope
from hanse.registry import SIZERS
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

READ_MODEL_FILE: Final = "reads.sqlite"
SEED_BITS: Final = 62
_FOR_READERS: Final = frozenset((RecordDecision, TaskSettled, TasksSettled, JobSettled))
"""Effects with nothing to perform: the feeder of the read model and the metrics get them."""
log = logging.getLogger(__name__)


class BrokerDaemon(Daemon):
    """Process of one broker."""

    def __init__(
        self, home: Path, league: LeagueConfig, name: str, digests: bool = False, founding: bool = False
    ) -> None:
        entry = league.broker(name)
        super().__init__(home, league, Identity(league.name, Role.BROKER, name), entry.address, entry.door)
        self._digests = self.directory / "commands.digest" if digests else None
        self._founding = founding
        self._settings = BrokerSettings(league.broker_config(name), league.policy)
        self.machine: Broker
        self.shell: JournalledShell | None = None
        self.feeder: ReadModelFeeder | None = None
        self._policy: PolicyProcess | None = None
        """Set only if the sizer takes advice."""

    def peers(self) -> Mapping[str, Peer]:
        """Return all other brokers and every warden."""
        league = self.league
        brokers = {
            entry.name: make_peer(league, Role.BROKER, entry.name, entry.address)
            for entry in league.serving_brokers
            if entry.name != self.identity.name
        }
        wardens = {
            entry.name: make_peer(league, Role.WARDEN, entry.name, entry.address)
            for entry in league.serving_clusters
        }
        return {**brokers, **wardens}

    def make_validation_context(self) -> ValidationContext:
        """Return the context that the configuration gives; recovery adds clusters and jobs."""
        return broker_validation_context(self.league.broker_config(self.identity.name))

    def _complete_validation_context(self, clock: Clock) -> None:
        self.validation_context.clock = clock.now
        self.validation_context.count_tasks = self.machine.count_tasks
        for entry in self.league.clusters:
            snapshot = self.machine.view_state_of(entry.name).snapshot
            if snapshot is not None:
                self.validation_context.learn_layout(snapshot)

    async def start(self) -> None:
        """Recover from disk, start the HTTPS server, then begin to take part."""
        self.feeder = feeder = ReadModelFeeder(
            ReadModel(self.directory / READ_MODEL_FILE, self.identity.name), self.fail
        )
        recovered = recover(
            self.directory,
            self._settings,
            feeder.replay,
            self._rebuild_read_model,
            self.start_report.report_replayed,
        )
        assert isinstance(recovered.machine, Broker)
        self.machine = recovered.machine
        feeder.catch_up()
        log.info("recovered", extra=log_fields(replayed=recovered.replayed, cut=recovered.cut_bytes))
        clock = recovered.clock
        self._complete_validation_context(clock)
        self.metrics = metrics = BrokerMetrics(self, self.machine, clock, recovered.journal, feeder)
        metrics.add_recovered(unfinished_jobs(feeder.read_model))
        self.shell = shell = self._make_shell(recovered.journal, clock, metrics, feeder)
        epoch = self.machine.epoch + 1
        self._pending_requests = PendingRequests(epoch)
        witnesses = () if self._founding else self.peers()
        self._history_check = history_check = HistoryCheck(
            self.directory, self.machine.links, witnesses, self.transport.send
        )
        self.receivers[self.identity.name] = history_check.on_message_before_start
        await self.transport.listen(self.address.host, self.address.port)
        await history_check.ask()
        self.receivers[self.identity.name] = self._on_message
        self.run_in_background(history_check.keep_asking())
        shell.handle(Booted(clock.now(), epoch, secrets.randbits(SEED_BITS)))
        if model := SIZERS.get(self.league.policy.sizer).model:
            self._policy = PolicyProcess(self._on_advice, self.count, model)
            self.run_in_background(self._policy.run())
        league_files = LeagueFileSync(self, self._settings_problem, self.machine.count_unreplicated)
        enrollment = EnrollmentApi(Home(self.home), self.credentials, lambda: league_files.newest, self.count)
        api = BrokerApi(self, self.machine, shell, feeder, self._pending_requests, enrollment, league_files)
        await self.serve(api.application(), api.revocations, league_files)
        self.run_in_background(keep_high_water_mark(self.directory, recovered.journal))
        self.run_in_background(AuthorityCopy(self).obtain())

    def _make_shell(
        self, journal: Journal, clock: Clock, metrics: BrokerMetrics, feeder: ReadModelFeeder
    ) -> JournalledShell:
        """Return the shell of the machine, connected to the read model, the transport and the metrics."""
        assert self.machine is not None
        shell = JournalledShell(
            self.machine, clock, self._perform, journal, self.fail, metrics.on_event_durable, self._digests
        )
        shell.snapshots.limit = lambda: feeder.applied
        shell.on_early_acceptance = feeder.require_position
        shell.on_disk_full = feeder.release_waiters
        feeder.is_journal_full = lambda: shell.disk_full
        shell.on_performed = self.transport.flush
        metrics.journal.longest_event = lambda: shell.longest_seconds
        return shell

    def _settings_problem(self, league: LeagueConfig) -> str:
        return settings_problem(self.machine, member_settings(league, self.identity.name))

    def _rebuild_read_model(self, first: int, last: int) -> None:
        """Rebuild the read model from the oldest history that is kept, if a replay between these positions
        would not complete it because its file was lost. A read model that is ahead of the journal proves that
        the journal is an older copy."""
        feeder = self.feeder
        assert feeder is not None
        refuse_journal_behind(self.directory, READ_MODEL_FILE, feeder.applied, last)
        if first <= feeder.applied <= last:
            return
        oldest = read_history(self.directory / JOURNAL_DIRECTORY)
        replay = MachineReplay(
            read_config_history(self.directory, self._settings), oldest.position, oldest.snapshot
        )
        log.warning(
            "rebuilding the read model", extra=log_fields(applied=feeder.applied, after=oldest.position)
        )
        clusters = tuple(entry.name for entry in self.league.clusters)
        feeder.reset_to_state(replay.machine.dump(), oldest.position, clusters)
        for position, record in oldest.records:
            event = decode_event(record)
            feeder.replay(position, event, replay.machine.handle(event))
            replay.advance(position)
            self.start_report.report_replayed(position - oldest.position, last - oldest.position)

    async def close(self) -> None:
        """Close the HTTPS server first and the journal last."""
        await super().close()
        if self.shell is not None:
            self.shell.close()
            write_final_high_water_mark(self.directory, self.shell.journal)
        if self.feeder is not None:
            self.feeder.close()

    def _on_message(self, envelope: Envelope) -> None:
        shell = self.shell
        assert shell is not None
        history_check = self._history_check
        if (history_check.unanswered or type(envelope.body) in HISTORY_MESSAGES) and history_check.intercept(
            envelope
        ):
            return
        if shell.is_full:
            self.count("dropped_disk_behind")
            return
        try:
            shell.handle(MessageReceived(shell.clock.now(), envelope))
        except RecordTooLarge as error:  # no member sends such a message
            self.count("dropped_too_large")
            log.warning("dropped a message: %s", error, extra=log_fields(source=envelope.source))

    def _on_advice(self, number: int, choices: tuple[Advice, ...]) -> None:
        shell = self.shell
        if shell is not None and not shell.is_full:
            shell.handle(AdviceReceived(shell.clock.now(), number, choices))

    def _perform(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is SendMessage:
            envelope = effect.envelope  # type: ignore[union-attr]  # the type is the test
            if envelope.target not in self._history_check.unanswered:
                self.send(envelope)
        elif kind is JobAccepted or kind is RequestRejected:
            self._pending_requests.on_reply(effect)  # type: ignore[arg-type]  # the type is the test
        elif kind is RequestAdvice:
            if self._policy is not None:
                self._policy.ask(effect)  # type: ignore[arg-type]  # the type is the test
        else:
            assert kind in _FOR_READERS, f"a broker has no effect {effect}"
