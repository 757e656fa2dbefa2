"""Dispatcher: the thread that admits an executor's workers, sends them calls and takes results.

One thread uses ``selectors`` for any number of workers and owns all state. Other threads put calls and
functions for it into an inbox, and wake it if it sleeps.
"""

import contextlib
import queue
import selectors
import socket
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from hanse.sdk.errors import HandLostError, NoHandsError, SdkError
from hanse.sdk.result_delivery import Settler
from hanse.sdk.workers.autoscaler import Muster
from hanse.sdk.workers.provisioner import Ending, Hired, Keeper, Refusal
from hanse.sdk.workers.refused_connections import Refusals
from hanse.sdk.workers.worker_connection import Gate, Link, LinkErrors
from hanse.sdk.workers.worker_pool import Call, Crew, Member
from hanse.sdk.workers.worker_protocol import (
    Bye,
    FrameError,
    Message,
    Piece,
    Recall,
    Results,
    Returned,
)

STRANGERS_MAX: Final = 256
"""Connections without proof of their key; further ones wait until these have proved it or are closed."""
STRANGER_SECONDS_MAX: Final = 20.0
FAREWELL_SECONDS_MAX: Final = 10.0
"""Seconds that workers may take to end with their executor; then the league ends them."""
BACKLOG: Final = 1_024
WAKE: Final = b"\0"
ASK_SECONDS: Final = 1.0
"""Interval at which a thread that waits for an answer checks whether this thread has ended."""

Answer = TypeVar("Answer")


class Exchange(threading.Thread):
    """Dispatcher thread. Other threads may call ``submit_call`` and ``post``."""

    def __init__(self, listener: socket.socket, gate: Gate, muster: Muster, keeper: Keeper) -> None:
        super().__init__(name="hanse exchange", daemon=True)
        self.crew = Crew()
        self.muster = muster
        self._gate = gate
        self._keeper = keeper
        self._listener = listener
        self._inbox: deque[Call | Callable[[], None]] = deque()
        """Filled by other threads; executors limit the calls in it."""
        self._awake = False
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[Link, None] = {}
        self._watched: dict[Link, int] = {}
        """Events for which each connection is registered."""
        self._closing = False
        self._over = False
        self._leave_by: float | None = None
        """Deadline for workers to end when the executor closes."""
        self._unruly: list[str] = []
        """Jobs of workers that did not end when they were released."""
        self._look_again: float | None = None
        self._ended = ""
        """Reason why this thread has ended."""
        self.held = 0
        """Calls that wait for the results of others; changed through ``post`` only."""
        self._awaited: list[tuple[int, threading.Event]] = []
        """Waiters for a number of workers."""
        self._mourning: dict[Member, list[Call]] = {}
        """Lost workers with the calls that fail when the cause is known."""
        self._settler = Settler(gate.spool, self.crew)
        self.refusals = Refusals()
        gate.admit = lambda hello: muster.admit(*hello.who)
        keeper.trouble = lambda error: self.post(partial(_raise, error))
        listener.setblocking(False)
        self._woken.setblocking(False)
        self._listening = False
        self._listen()
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)

    # --- for other threads

    def offer(self, call: Call) -> None:
        """Submit a call."""
        self._inbox.append(call)
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # it has ended meanwhile
                self._wake.send(WAKE)
        if self._ended:
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """Fail the calls in the inbox, because this thread has ended. Runs in any thread."""
        while True:
            try:
                item = self._inbox.popleft()
            except IndexError:
                return
            if isinstance(item, Call) and (item.begun or item.future._begin()):
                item.future.set_exception(SdkError(self._ended))

    def post(self, work: Callable[[], None]) -> None:
        """Have a function called in this thread."""
        self._inbox.append(work)
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # it has ended and no longer reads its inbox
                self._wake.send(WAKE)

    def pending(self) -> int:
        """Return about how many calls have not ended."""
        return len(self._inbox) + self.crew.pending()

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """Call a function in this thread and return its result. Raises ``SdkError`` if it has ended."""
        if threading.current_thread() is self:
            return work()
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.post(lambda: answers.put(work()))
        while True:
            try:
                return answers.get(timeout=ASK_SECONDS)
            except queue.Empty:
                if self._ended:
                    raise SdkError(self._ended) from None

    def close(self, cancel: bool) -> None:
        """End after the calls have ended; ``cancel``: cancel those that have not begun."""
        self.post(lambda: self._close(cancel))

    # --- the loop

    def run(self) -> None:
        """Serve until closed. A bug here must not leave a thread waiting."""
        trouble: BaseException | None = None
        try:
            while not self._over:
                self._turn()
        except BaseException as error:  # noqa: BLE001  all waiting calls fail with it
            trouble = error
        self._end(trouble)

    def _turn(self) -> None:
        self._awake = False
        # Other threads fill the inbox and then read `_awake`; this one clears `_awake`, then reads the inbox.
        timeout = 0.0 if self._inbox else self._timeout()
        events = self._selector.select(timeout)
        self._awake = True
        for key, mask in events:
            key.data(mask)
        inbox, crew = self._inbox, self.crew
        while inbox:
            item = inbox.popleft()
            if isinstance(item, Call):
                crew.add(item)
            else:
                item()
        now = time.monotonic()
        self._give_out(now)
        self._tend(now)

    def _timeout(self) -> float | None:
        """Return the seconds until there is something to do; None: until an event."""
        now = time.monotonic()
        times = [self.muster.next_at(self.crew, now), self._look_again, self._leave_by]
        times += [link.since + STRANGER_SECONDS_MAX for link in self._strangers]
        known = [moment for moment in times if moment is not None]
        return max(0.0, min(known) - now) if known else None

    def _drain(self, _: int) -> None:
        self._woken.recv(4_096)

    def _give_out(self, now: float) -> None:
        for member, calls in self.crew.assign(now):
            link: Link = member.link
            for call in calls:
                call.named = bool(call.function.name)
            try:
                link.send_calls([(call.number, call.function, call.packed, call.inputs) for call in calls])
            except LinkErrors:
                self._lose(member)
                continue
            self._watch(link)
        asked, again = self.crew.steals(now)
        self._look_again = None if again is None else now + again
        for member, count in asked:
            self._tell(member, Recall((), count))

    def _tell(self, member: Member, message: Message) -> None:
        link: Link = member.link
        try:
            link.send(message)
        except LinkErrors:
            self._lose(member)
            return
        self._watch(link)

    # --- connections

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        link = Link(connection, self._gate, time.monotonic())
        self._strangers[link] = None
        self._watched[link] = selectors.EVENT_READ
        self._selector.register(
            connection, selectors.EVENT_READ, lambda mask: self._serve_stranger(link, mask)
        )
        self._listen()

    def _listen(self) -> None:
        """Accept connections only while not too many others are without proof."""
        wanted = len(self._strangers) < STRANGERS_MAX
        if wanted and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not wanted:
            self._selector.unregister(self._listener)
        self._listening = wanted

    def _serve_stranger(self, link: Link, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                link.write()
            if mask & selectors.EVENT_READ and link.receive():
                raise FrameError("a worker that sends messages before it has calls")
        except LinkErrors as error:
            if isinstance(error, (FrameError, ssl.SSLError)):
                self.refusals.tell(link, str(error))
            self._drop(link)
            return
        if link.ready:
            self._welcome(link)
        self._watch(link)

    def _welcome(self, link: Link) -> None:
        """Add a worker that has proved its key."""
        hello = link.hello
        assert hello is not None
        del self._strangers[link]
        self._listen()
        for member in list(self.crew.members):
            if (member.job, member.index) == (hello.job, hello.index):  # the league has started it again
                self._lose(member)
        member = Member(hello.job, hello.index, hello.attempt, hello.cluster, link, time.monotonic())
        self.crew.members.append(member)
        self.muster.came(hello.job, hello.index)
        self._tell_awaited()
        self._selector.modify(link.socket, self._watched[link], lambda mask: self._serve(member, mask))

    def await_hands(self, count: int, event: threading.Event) -> None:
        """Set an event when this many workers are connected. Runs in this thread."""
        self._awaited.append((count, event))
        self._tell_awaited()

    def _tell_awaited(self) -> None:
        for count, event in self._awaited:
            if len(self.crew.members) >= count or self.muster.refused or self._ended:
                event.set()
        self._awaited = [(count, event) for count, event in self._awaited if not event.is_set()]

    def _serve(self, member: Member, mask: int) -> None:
        link: Link = member.link
        try:
            if mask & selectors.EVENT_WRITE:
                link.write()
            if mask & selectors.EVENT_READ:
                for message in link.receive():
                    self._hear(member, message)
        except LinkErrors as error:
            if isinstance(error, (FrameError, ssl.SSLError)):
                self.refusals.tell(link, f"worker {member.task}: {error}")
            self._lose(member)
            return
        self._watch(link)

    def _watch(self, link: Link) -> None:
        """Wait for a writable socket as long as output waits."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.writing else 0)
        if link in self._watched and self._watched[link] != wanted:
            self._watched[link] = wanted
            self._selector.modify(link.socket, wanted, self._selector.get_key(link.socket).data)

    def _drop(self, link: Link) -> None:
        if link in self._strangers:
            del self._strangers[link]
            self._listen()
        if self._watched.pop(link, None) is not None:
            self._selector.unregister(link.socket)
        link.close()

    def _lose(self, member: Member) -> None:
        """Remove a worker that has ended, as requested or not."""
        if member not in self.crew.members:
            return
        over = self.crew.lost(member)
        self._drop(member.link)
        if over:
            self._mourning[member] = over
            told = self._posted(partial(self._mourned, member))
            self._keeper.mourn(member.job, member.index, member.attempt, told)

    def _mourned(self, member: Member, ending: Ending) -> None:
        """Fail a lost worker's calls when the league has reported its end."""
        text = f"{ending.sentence()}; its call may not be repeated"
        for call in self._mourning.pop(member):
            call.future.set_exception(HandLostError(text, ending.task, ending.code, ending.note))

    # --- messages of workers

    def _hear(self, member: Member, message: Message) -> None:
        if isinstance(message, Results):
            self._settler.take(member, message)
        elif isinstance(message, Returned):
            for call in self.crew.returned(member, message.numbers):
                call.future._withdrawn()
        elif isinstance(message, Piece):
            member.link.assembly.add(message)
        else:
            raise FrameError(f"the message {type(message).__name__} is not for an executor")

    # --- number of workers

    def _tend(self, now: float) -> None:
        muster, crew = self.muster, self.crew
        if self._closing and not crew.pending() and not self.held and not self._mourning:
            self._finish(now)
            return
        count = muster.wanted(crew, now)
        if count:
            muster.asking = True
            needed = not crew.members and not muster.starting()
            self._keeper.hire(count, muster.most is None, needed, self._posted(self._hired))
        for job, indices in muster.looks(now):
            self._keeper.look(job, indices, self._posted(partial(self._looked, job)))
        for member in muster.idle(crew, now):
            self._let_go(member)
        for link in [link for link in self._strangers if now - link.since > STRANGER_SECONDS_MAX]:
            self.refusals.tell(link, "no proof of a key in time")
            self._drop(link)
        if muster.refused and len(crew) and not crew.members and not muster.starting():
            self._give_up(muster.refused)

    def _posted(self, work: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that calls ``work`` in this thread."""
        return lambda answer: self.post(lambda: work(answer))

    def _hired(self, answer: Hired | Refusal) -> None:
        now = time.monotonic()
        if isinstance(answer, Hired):
            self.muster.hired(answer, now)
            return
        reason = self.muster.not_hired(answer, now)
        self._tell_awaited()
        if not self.crew.members and not self.muster.starting():
            self._give_up(reason)

    def _looked(self, job: str, endings: list[tuple[int, Ending]]) -> None:
        reason = self.muster.looked(job, endings, time.monotonic())
        if reason and not self.crew.members:
            self._give_up(f"workers end before they connect: {reason}")

    def _give_up(self, reason: str) -> None:
        """Fail the waiting calls, because no worker will take them."""
        for call in self.crew.clear():
            if call.begun or call.future._begin():
                call.future.set_exception(NoHandsError(reason))

    def _let_go(self, member: Member) -> None:
        member.closing = True
        self._tell(member, Bye())

    # --- cancelling and closing

    def cancel(self, number: int) -> None:
        """Recall a call from its worker. Runs in this thread."""
        for member in list(self.crew.members):
            if number in member.outstanding:
                member.outstanding[number].cancelled = True
                self._tell(member, Recall((number,), 0))
                return
        for call in self.crew.waiting():
            if call.number == number:
                call.cancelled = True

    def _close(self, cancel: bool) -> None:
        self._closing = True
        if not cancel:
            return
        for call in list(self.crew.waiting()):
            call.cancelled = True
            if not call.begun:
                call.future.cancel()
        for member in list(self.crew.members):
            numbers = tuple(member.outstanding)
            for call in member.outstanding.values():
                call.cancelled = True
            if numbers:
                self._tell(member, Recall(numbers, 0))

    def _finish(self, now: float) -> None:
        """Release the workers when no call is left, and end with the last worker."""
        if self._leave_by is None:
            self._leave_by = now + FAREWELL_SECONDS_MAX
        for member in list(self.crew.members):
            if not member.closing:
                self._let_go(member)
            elif now >= self._leave_by:
                self._unruly.append(member.job)
                self._lose(member)
        if not self.crew.members:
            self._over = True

    def _end(self, trouble: BaseException | None) -> None:
        """Release everything and fail the calls that are left."""
        self._awake = True
        self._ended = "the executor has shut down" if trouble is None else f"bug in the executor: {trouble!r}"
        calls = self.crew.clear()
        for member in self.crew.members:
            calls += member.outstanding.values()
        for lost in self._mourning.values():
            calls += lost
        self._inbox.extendleft(calls)
        self._refuse_rest()
        self._tell_awaited()
        for link in list(self._watched):
            self._drop(link)
        self._selector.close()
        self._listener.close()
        self._woken.close()
        self._wake.close()
        self._keeper.dismiss(list(dict.fromkeys([*self.muster.missing, *self._unruly])))
        self._keeper.end()
        self._settler.unspool()
        if self._gate.spool is not None:
            self._gate.spool.close()
        if trouble is not None:
            sys.excepthook(type(trouble), trouble, trouble.__traceback__)


def _raise(error: BaseException) -> None:
    """Raise a bug of another thread here, so that this thread ends and waiting calls fail."""
    raise error
