"""Base of every member's process: certificate, transport, HTTPS server, and an orderly end.

A daemon stops on SIGTERM or SIGINT, and at once when its journal can no longer be trusted: then it promises
nothing more, and what is on disk is complete.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Final

from hanse.league.config import Address, LeagueConfig, LeagueError
from hanse.live.ca import client
from hanse.live.high_water_mark import LostHistoryError
from hanse.live.http.application import ApiApplication
from hanse.live.http.revocation_sync import RevocationSync
from hanse.live.http.server import HttpsServer
from hanse.live.membership.fenced_members import report_fenced
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.transport import Transport
from hanse.live.rpc.validation_context import ValidationContext
from hanse.live.start_report import NO_REPORT, StartReport
from hanse.live.telemetry.json_logs import log_fields
from hanse.live.telemetry.loop_lag import LoopLag
from hanse.live.telemetry.member_metrics import MemberMetrics
from hanse.live.telemetry.metrics_endpoint import metrics_route
from hanse.live.wall_clock_check import WallClockCheck
from hanse.model.messages import Envelope
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.wall_time import wall_now

RENEWAL_PAUSE_SECONDS: Final = 60.0
"""Seconds to wait after a failed renewal."""
RENEWAL_CHECK_SECONDS_MAX: Final = 86_400.0
"""Longest wait until the certificate is checked again: a wall clock may be set."""
GC_THRESHOLD: Final = 20_000
"""New objects after which Python collects reference cycles. Members make few, and the records of a batch of
jobs stay: a collection every 700 objects took an eighth of a broker's time."""
log = logging.getLogger(__name__)

MessageHandler = Callable[[Envelope], None]


class Daemon:
    """Process of one member of the league."""

    def __init__(
        self, home: Path, league: LeagueConfig, identity: Identity, address: Address, server_address: Address
    ) -> None:
        if league.is_retired(identity.name):
            raise LeagueError(
                f"{identity.name} was retired from the league (version {league.version} of its file): it is "
                f"not started any more. Its directory {home / identity.name} may be deleted"
            )
        self.home = home
        self.league = league
        self.identity = identity
        self.directory = home / identity.name
        self.credentials = Credentials(self.directory)
        self.address = address
        self.server_address = server_address
        self.counters: dict[str, int] = {}
        """Number of occurrences by name, beside the counters of the transport."""
        self.receivers: dict[str, MessageHandler] = {}
        """Message handlers of this process's machines, by name."""
        own = Peer(identity, address.host, address.port)
        self.validation_context = self.make_validation_context()
        self.transport = Transport(
            identity,
            self.credentials,
            {identity.name: own, **self.peers()},
            self._deliver,
            contexts={identity.name: self.validation_context},
        )
        self.metrics = MemberMetrics(self)
        """Metrics of the member; each kind of member puts its own here when it starts."""
        self.server: HttpsServer | None = None
        self.start_report = NO_REPORT
        """Receiver of the progress of the start."""
        self.restart_requested = False
        """True if the daemon ended to start with another league file."""
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._background_tasks: list[asyncio.Task[None]] = []
        self._lag: LoopLag | None = None

    def peers(self) -> Mapping[str, Peer]:
        """Return the members that this one talks to, by name."""
        raise NotImplementedError

    def make_validation_context(self) -> ValidationContext:
        """Return the context that messages are validated in before the machine handles them."""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover from disk and begin to take part."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancel background tasks, and close the server, the transport and the metrics."""
        if self._lag is not None:
            self._lag.close()
        for task in self._background_tasks:
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        if self.server is not None:
            await self.server.close()
        await self.transport.close()
        self.metrics.close()

    async def serve(
        self, application: ApiApplication, revocations: RevocationSync, league_files: LeagueFileSync
    ) -> None:
        """Start the HTTPS server with the metrics of this member, and keep its revocations and its league
        file up to date."""
        self.metrics.league_file_state = league_files.monitoring_summary
        application.router.routes.append(metrics_route(self.metrics, self.count))
        self.server = HttpsServer(self.metrics.http.wrap(application), self.credentials)
        await self.server.listen(self.server_address)
        self.run_in_background(revocations.run())
        self.run_in_background(league_files.run())

    def fail(self, error: BaseException) -> None:
        """Stop because of an error that cannot be repaired while running, and log it."""
        if self._failure is None:
            self._failure = error
            log.critical("stopping: %s", error, exc_info=error)
        self._stopping.set()

    def stop(self) -> None:
        """End in good order."""
        self._stopping.set()

    def start_again(self, why: str) -> None:
        """End in good order, and start with the league file as it is now."""
        log.warning("restarting: %s", why)
        self.restart_requested = True
        self._stopping.set()

    async def run(self, report: StartReport = NO_REPORT) -> None:
        """Take part until a signal or a failure. ``report`` receives the progress of the start."""
        self.start_report = report
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.set_exception_handler(self._on_loop_error)
        try:
            await self.start()
            gc.freeze()  # present objects stay: the collector need not visit them again
            gc.set_threshold(GC_THRESHOLD)
            self.metrics.lag = self._lag = LoopLag(loop)
            self.run_in_background(self._renew())
            self.run_in_background(WallClockCheck(self.credentials.certificate).run())
            log.info("ready", extra=log_fields(address=str(self.address), door=str(self.server_address)))
            report.report_ready()
            await self._stopping.wait()
        except LostHistoryError as error:
            await report_fenced(self, str(error))
            raise
        finally:
            await self.close()
        if self._failure is not None:
            if isinstance(self._failure, LostHistoryError):
                await report_fenced(self, str(self._failure))
            raise self._failure

    def run_in_background(self, coroutine: Coroutine[None, None, None]) -> None:
        """Run a coroutine beside the machines; its failure ends the daemon."""
        task = asyncio.create_task(coroutine)
        task.add_done_callback(self._on_background_done)
        self._background_tasks.append(task)

    def count(self, what: str) -> None:
        """Count an occurrence."""
        self.counters[what] = self.counters.get(what, 0) + 1

    @property
    def wire_counters(self) -> Mapping[str, int]:
        """Counters of the transport."""
        return self.transport.counters

    def send(self, envelope: Envelope) -> None:
        """Send a message, within this process or through the transport."""
        handler = self.receivers.get(envelope.target)
        if handler is not None:
            handler(envelope)
        else:
            self.transport.send(envelope)

    def _deliver(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            self.receivers[envelope.target](envelope)

    def _on_background_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self.fail(error)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Stop if a machine may have raised the exception of a callback: its state cannot be trusted."""
        error = context.get("exception")
        if isinstance(error, AssertionError | LookupError | TypeError | AttributeError | ArithmeticError):
            self.fail(error)
        else:
            loop.default_exception_handler(context)

    async def _renew(self) -> None:
        """Renew the certificate in time; log a failure and try again."""
        while True:
            await asyncio.sleep(self._seconds_until_renewal())
            try:
                await client.run_ca_process("own", self.home, {"directory": str(self.directory)})
                await self.transport.reload()
                if self.server is not None:
                    self.server.reload()
                self.count("renewed")
                log.info("the certificate was renewed")
            except OSError as error:
                self.count("renewal_failed")
                log.warning("the certificate could not be renewed yet: %s", error)
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)

    def _seconds_until_renewal(self) -> float:
        """Return the seconds until two thirds of the certificate's life are over."""
        certificate = self.credentials.certificate()
        due = certificate.not_before + (certificate.not_after - certificate.not_before) * 2 // 3
        return min(max(due - wall_now(), 0) / 1_000_000, RENEWAL_CHECK_SECONDS_MAX)


def make_peer(league: LeagueConfig, role: Role, name: str, address: Address) -> Peer:
    """Return a member as an entry of the address book."""
    return Peer(Identity(league.name, role, name), address.host, address.port)
