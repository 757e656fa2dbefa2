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

from hanse.live.ca import client
from hanse.live.config.league import Address, League, LeagueError
from hanse.live.high_water_mark import ForgetfulError
from hanse.live.http.server import Door
from hanse.live.membership.fencing import tell_fenced
from hanse.live.readiness import SILENT, StartReport
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.transport import Transport
from hanse.live.rpc.validation_context import Limits
from hanse.live.telemetry.json_logs import fields
from hanse.live.telemetry.loop_lag import LoopLag
from hanse.live.telemetry.member_metrics import MemberWatch
from hanse.live.wall_clock_check import WallWatch
from hanse.model.messages import Envelope
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.wall_time import wall_now

RENEWAL_PAUSE_SECONDS: Final = 60.0
"""Seconds to wait after a failed renewal."""
RENEWAL_LOOK_SECONDS_MAX: Final = 86_400.0
"""Longest wait until the certificate is checked again: a wall clock may be set."""
YOUNG_OBJECTS: Final = 20_000
"""New objects after which Python collects reference cycles. Members make few, and the records of a batch of
jobs stay: a collection every 700 objects took an eighth of a broker's time."""
log = logging.getLogger(__name__)

Receive = Callable[[Envelope], None]


class Daemon:
    """Process of one member of the league."""

    def __init__(
        self, home: Path, league: League, identity: Identity, address: Address, door: Address
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
        self.door_address = door
        self.counters: dict[str, int] = {}
        """Number of occurrences by name, beside the counters of the transport."""
        self.receivers: dict[str, Receive] = {}
        """Message handlers of this process's machines, by name."""
        own = Peer(identity, address.host, address.port)
        self.limits = self.make_limits()
        self.wire = Transport(
            identity,
            self.credentials,
            {identity.name: own, **self.peers()},
            self._deliver,
            limits={identity.name: self.limits},
        )
        self.watch = MemberWatch(self)
        """Metrics of the member; each kind of member puts its own here when it starts."""
        self.door: Door | None = None
        self.report = SILENT
        """Receiver of the progress of the start."""
        self.starts_again = False
        """True if the daemon ended to start with another league file."""
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._chores: list[asyncio.Task[None]] = []
        self._lag: LoopLag | None = None

    def peers(self) -> Mapping[str, Peer]:
        """Return the members that this one talks to, by name."""
        raise NotImplementedError

    def make_limits(self) -> Limits:
        """Return the context that messages are validated in before the machine handles them."""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover from disk and begin to take part."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancel background tasks, and close the server, the transport and the metrics."""
        if self._lag is not None:
            self._lag.close()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if self.door is not None:
            await self.door.close()
        await self.wire.close()
        self.watch.close()

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
        self.starts_again = True
        self._stopping.set()

    async def run(self, report: StartReport = SILENT) -> None:
        """Take part until a signal or a failure. ``report`` receives the progress of the start."""
        self.report = report
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.set_exception_handler(self._loop_failed)
        try:
            await self.start()
            gc.freeze()  # present objects stay: the collector need not visit them again
            gc.set_threshold(YOUNG_OBJECTS)
            self.watch.lag = self._lag = LoopLag(loop)
            self.chore(self._renew())
            self.chore(WallWatch(self.credentials.certificate).keep())
            log.info("ready", extra=fields(address=str(self.address), door=str(self.door_address)))
            report.ready()
            await self._stopping.wait()
        except ForgetfulError as error:
            await tell_fenced(self, str(error))
            raise
        finally:
            await self.close()
        if self._failure is not None:
            if isinstance(self._failure, ForgetfulError):
                await tell_fenced(self, str(self._failure))
            raise self._failure

    def chore(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine beside the machines; its failure ends the daemon."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._chore_done)
        self._chores.append(task)

    def count(self, what: str) -> None:
        """Count an occurrence."""
        self.counters[what] = self.counters.get(what, 0) + 1

    @property
    def wire_counters(self) -> Mapping[str, int]:
        """Counters of the transport."""
        return self.wire.counters

    def send(self, envelope: Envelope) -> None:
        """Send a message, within this process or through the transport."""
        receive = self.receivers.get(envelope.target)
        if receive is not None:
            receive(envelope)
        else:
            self.wire.send(envelope)

    def _deliver(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            self.receivers[envelope.target](envelope)

    def _chore_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self.fail(error)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Stop if a machine may have raised the exception of a callback: its state cannot be trusted."""
        error = context.get("exception")
        if isinstance(error, AssertionError | LookupError | TypeError | AttributeError | ArithmeticError):
            self.fail(error)
        else:
            loop.default_exception_handler(context)

    async def _renew(self) -> None:
        """Renew the certificate in time; log a failure and try again."""
        while True:
            await asyncio.sleep(self._until_renewal())
            try:
                await client.ask("own", self.home, {"directory": str(self.directory)})
                await self.wire.reload()
                if self.door is not None:
                    self.door.reload()
                self.count("renewed")
                log.info("the certificate was renewed")
            except OSError as error:
                self.count("renewal_failed")
                log.warning("the certificate could not be renewed yet: %s", error)
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)

    def _until_renewal(self) -> float:
        """Return the seconds until two thirds of the certificate's life are over."""
        certificate = self.credentials.certificate()
        due = certificate.not_before + (certificate.not_after - certificate.not_before) * 2 // 3
        return min(max(due - wall_now(), 0) / 1_000_000, RENEWAL_LOOK_SECONDS_MAX)


def peer_of(league: League, role: Role, name: str, address: Address) -> Peer:
    """Return a member as an entry of the address book."""
    return Peer(Identity(league.name, role, name), address.host, address.port)
