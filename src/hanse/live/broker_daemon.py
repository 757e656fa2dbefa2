"""Process of a broker: the machine in its shell, the read model, the transport and the HTTPS server."""

import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hanse.core.broker.broker import Broker
from hanse.live.ca.replication import AuthorityCopy
from hanse.live.clock import Clock
from hanse.live.config.config_history import BrokerSettings, Past, objection, read_eras, settings_of
from hanse.live.config.league import League
from hanse.live.daemon import Daemon, peer_of
from hanse.live.high_water_mark import end_reached, keep_reached, refuse_behind
from hanse.live.history_check import ABOUT_THE_PAST, Recollection
from hanse.live.http.broker_api import BrokerDoor
from hanse.live.http.enrollment_api import Enrolment
from hanse.live.http.server import Door
from hanse.live.journal.errors import RecordTooLarge
from hanse.live.journal.reading import history
from hanse.live.membership.membership import Membership
from hanse.live.pending_requests import Requests
from hanse.live.policy_process.host import PolicyProcess
from hanse.live.readmodel.feeder import Feed
from hanse.live.readmodel.read_model import Reads
from hanse.live.recovery import JOURNAL, decode_event, recover
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.validation_context import Limits, broker_limits
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.broker_metrics import BrokerWatch, living
from hanse.live.telemetry.json_logs import fields
from hanse.live.telemetry.metrics_endpoint import metrics_route
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
from hanse.policy.sizers import SIZERS
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

READS: Final = "reads.sqlite"
SEED_BITS: Final = 62
log = logging.getLogger(__name__)


class BrokerDaemon(Daemon):
    """Process of one broker."""

    def __init__(
        self, home: Path, league: League, name: str, digests: bool = False, founding: bool = False
    ) -> None:
        entry = league.broker(name)
        super().__init__(home, league, Identity(league.name, Role.BROKER, name), entry.address, entry.door)
        self._digests = self.directory / "commands.digest" if digests else None
        self._founding = founding
        self._settings = BrokerSettings(league.broker_config(name), league.policy)
        self.machine: Broker
        self.shell: JournalledShell | None = None
        self.feed: Feed | None = None
        self._policy: PolicyProcess | None = None
        """Set only if the sizer takes advice."""

    def peers(self) -> Mapping[str, Peer]:
        """Return all other brokers and every warden."""
        league = self.league
        brokers = {
            entry.name: peer_of(league, Role.BROKER, entry.name, entry.address)
            for entry in league.serving_brokers
            if entry.name != self.identity.name
        }
        wardens = {
            entry.name: peer_of(league, Role.WARDEN, entry.name, entry.address)
            for entry in league.serving_clusters
        }
        return {**brokers, **wardens}

    def make_limits(self) -> Limits:
        """Return the context that the configuration gives; recovery adds clusters and jobs."""
        return broker_limits(self.league.broker_config(self.identity.name))

    def _sharpen_limits(self, clock: Clock) -> None:
        self.limits.clock = clock.now
        self.limits.tasks = self.machine.count_tasks
        for entry in self.league.clusters:
            snapshot = self.machine.view_state_of(entry.name).snapshot
            if snapshot is not None:
                self.limits.learn(snapshot)

    async def start(self) -> None:
        """Recover from disk, start the HTTPS server, then begin to take part."""
        self.feed = feed = Feed(Reads(self.directory / READS, self.identity.name), self.fail)
        recovered = recover(
            self.directory, self._settings, feed.replay, self._mend_reads, self.report.replayed
        )
        assert isinstance(recovered.machine, Broker)
        self.machine = recovered.machine
        feed.catch_up()
        log.info("recovered", extra=fields(replayed=recovered.replayed, cut=recovered.cut))
        clock = recovered.clock
        self._sharpen_limits(clock)
        self.watch = watch = BrokerWatch(self, self.machine, clock, recovered.journal, feed)
        watch.know(living(feed.reads))
        self.shell = shell = JournalledShell(
            self.machine, clock, self._perform, recovered.journal, self.fail, watch.told, self._digests
        )
        shell.snapshot_allowed = lambda: feed.applied
        shell.promised = feed.promised
        shell.filled = feed.release
        feed.journal_full = lambda: shell.disk_full
        epoch = self.machine.epoch + 1
        self._requests = Requests(epoch)
        shell.performed = self.wire.flush
        watch.journal.longest = lambda: shell.longest
        witnesses = () if self._founding else self.peers()
        self._past = past = Recollection(self.directory, self.machine.links, witnesses, self.wire.send)
        self.receivers[self.identity.name] = past.hear
        await self.wire.listen(self.address.host, self.address.port)
        await past.ask()
        self.receivers[self.identity.name] = self._receive
        self.chore(past.keep())
        shell.take(Booted(clock.now(), epoch, secrets.randbits(SEED_BITS)))
        if SIZERS[self.league.policy.sizer].takes_advice:
            self._policy = PolicyProcess(self._advised, self.count)
            self.chore(self._policy.run())
        membership = Membership(self, self._objection, self.machine.count_unreplicated)
        watch.league_file = membership.seen
        enrolment = Enrolment(Home(self.home), self.credentials, lambda: membership.known, self.count)
        door = BrokerDoor(self, self.machine, shell, feed, self._requests, enrolment, membership)
        application = door.application()
        application.router.routes.append(metrics_route(watch, self.count))
        self.door = Door(watch.door.around(application), self.credentials)
        await self.door.listen(self.door_address)
        self.chore(door.revocations.keep())
        self.chore(keep_reached(self.directory, recovered.journal))
        self.chore(membership.keep())
        self.chore(AuthorityCopy(self).obtain())

    def _objection(self, league: League) -> str:
        return objection(self.machine, settings_of(league, self.identity.name))

    def _mend_reads(self, first: int, last: int) -> None:
        """Rebuild the read model from the oldest history that is kept, if a replay between these positions
        would not complete it because its file was lost. A read model that is ahead of the journal proves that
        the journal is an older copy."""
        feed = self.feed
        assert feed is not None
        refuse_behind(self.directory, READS, feed.applied, last)
        if first <= feed.applied <= last:
            return
        past = history(self.directory / JOURNAL)
        lived = Past(read_eras(self.directory, self._settings), past.position, past.snapshot)
        log.warning("rebuilding the read model", extra=fields(applied=feed.applied, after=past.position))
        clusters = tuple(entry.name for entry in self.league.clusters)
        feed.begin(lived.machine.dump(), past.position, clusters)
        for position, record in past.records:
            event = decode_event(record)
            feed.replay(position, event, lived.machine.handle(event))
            lived.reached(position)
            self.report.replayed(position - past.position, last - past.position)

    async def close(self) -> None:
        """Close the HTTPS server first and the journal last."""
        await super().close()
        if self.shell is not None:
            self.shell.close()
            end_reached(self.directory, self.shell.journal)
        if self.feed is not None:
            self.feed.close()

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

    def _advised(self, number: int, choices: tuple[Advice, ...]) -> None:
        shell = self.shell
        if shell is not None and not shell.full:
            shell.take(AdviceReceived(shell.clock.now(), number, choices))

    def _perform(self, command: Effect) -> None:
        kind = type(command)
        if kind is SendMessage:
            envelope = command.envelope  # type: ignore[union-attr]  # the type is the test
            if envelope.target not in self._past.unheard:
                self.send(envelope)
        elif kind is JobAccepted or kind is RequestRejected:
            self._requests.answer(command)  # type: ignore[arg-type]  # the type is the test
        elif kind is RequestAdvice:
            if self._policy is not None:
                self._policy.ask(command)  # type: ignore[arg-type]  # the type is the test
        else:
            assert kind in (RecordDecision, TaskSettled, TasksSettled, JobSettled), (
                f"a broker has no effect {command}"
            )
