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

from hanse.sdk.errors import NoWorkersError, SdkError, WorkerLostError
from hanse.sdk.result_delivery import ResultDelivery
from hanse.sdk.workers.autoscaler import Autoscaler
from hanse.sdk.workers.provisioner import Provisioner, WorkerExit, WorkerJob, WorkerRefusal
from hanse.sdk.workers.refused_connections import RefusedConnections
from hanse.sdk.workers.worker_connection import CONNECTION_ERRORS, ConnectionSettings, WorkerConnection
from hanse.sdk.workers.worker_pool import PooledWorker, RemoteCall, WorkerPool
from hanse.sdk.workers.worker_protocol import (
    Bye,
    FrameError,
    Message,
    PayloadPiece,
    Recall,
    Results,
    ReturnedCalls,
)

UNAUTHENTICATED_MAX: Final = 256
"""Connections without proof of their key; further ones wait until these have proved it or are closed."""
AUTHENTICATION_SECONDS_MAX: Final = 20.0
SHUTDOWN_SECONDS_MAX: Final = 10.0
"""Seconds that workers may take to end with their executor; then the league ends them."""
BACKLOG: Final = 1_024
WAKE_BYTE: Final = b"\0"
ASK_POLL_SECONDS: Final = 1.0
"""Interval at which a thread that waits for an answer checks whether this thread has ended."""

Answer = TypeVar("Answer")


class Dispatcher(threading.Thread):
    """Dispatcher thread. Other threads may call ``submit_call`` and ``post``."""

    def __init__(
        self,
        listener: socket.socket,
        settings: ConnectionSettings,
        autoscaler: Autoscaler,
        provisioner: Provisioner,
    ) -> None:
        super().__init__(name="hanse exchange", daemon=True)
        self.pool = WorkerPool()
        self.autoscaler = autoscaler
        self._settings = settings
        self._provisioner = provisioner
        self._listener = listener
        self._inbox: deque[RemoteCall | Callable[[], None]] = deque()
        """Filled by other threads; executors limit the calls in it."""
        self._awake = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._unauthenticated: dict[WorkerConnection, None] = {}
        self._registered_events: dict[WorkerConnection, int] = {}
        """Events for which each connection is registered."""
        self._closing = False
        self._done = False
        self._shutdown_deadline: float | None = None
        """Deadline for workers to end when the executor closes."""
        self._unfinished_jobs: list[str] = []
        """Jobs of workers that did not end when they were released."""
        self._recheck_at: float | None = None
        self._end_reason = ""
        """Reason why this thread has ended."""
        self.deferred_calls = 0
        """Calls that wait for the results of others; changed through ``post`` only."""
        self._worker_waiters: list[tuple[int, threading.Event]] = []
        """Waiters for a number of workers."""
        self._lost_calls: dict[PooledWorker, list[RemoteCall]] = {}
        """Lost workers with the calls that fail when the cause is known."""
        self._delivery = ResultDelivery(settings.store, self.pool)
        self.refusals = RefusedConnections()
        settings.check_admission = lambda hello: autoscaler.admit(*hello.attempt_id)
        provisioner.on_error = lambda error: self.post(partial(_raise, error))
        listener.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._listening = False
        self._update_listening()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._drain_wakeups)

    # --- for other threads

    def submit_call(self, call: RemoteCall) -> None:
        """Submit a call."""
        self._inbox.append(call)
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # it has ended meanwhile
                self._wake_sender.send(WAKE_BYTE)
        if self._end_reason:
            self._fail_inbox()

    def _fail_inbox(self) -> None:
        """Fail the calls in the inbox, because this thread has ended. Runs in any thread."""
        while True:
            try:
                item = self._inbox.popleft()
            except IndexError:
                return
            if isinstance(item, RemoteCall) and (item.begun or item.future._set_running()):
                item.future.set_exception(SdkError(self._end_reason))

    def post(self, work: Callable[[], None]) -> None:
        """Have a function called in this thread."""
        self._inbox.append(work)
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # it has ended and no longer reads its inbox
                self._wake_sender.send(WAKE_BYTE)

    def pending_count(self) -> int:
        """Return about how many calls have not ended."""
        return len(self._inbox) + self.pool.pending_count()

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """Call a function in this thread and return its result. Raises ``SdkError`` if it has ended."""
        if threading.current_thread() is self:
            return work()
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.post(lambda: answers.put(work()))
        while True:
            try:
                return answers.get(timeout=ASK_POLL_SECONDS)
            except queue.Empty:
                if self._end_reason:
                    raise SdkError(self._end_reason) from None

    def close(self, cancel: bool) -> None:
        """End after the calls have ended; ``cancel``: cancel those that have not begun."""
        self.post(lambda: self._close(cancel))

    # --- the loop

    def run(self) -> None:
        """Serve until closed. A bug here must not leave a thread waiting."""
        bug: BaseException | None = None
        try:
            while not self._done:
                self._run_once()
        except BaseException as error:  # noqa: BLE001  all waiting calls fail with it
            bug = error
        self._clean_up(bug)

    def _run_once(self) -> None:
        self._awake = False
        # Other threads fill the inbox and then read `_awake`; this one clears `_awake`, then reads the inbox.
        timeout = 0.0 if self._inbox else self._select_timeout()
        events = self._selector.select(timeout)
        self._awake = True
        for key, mask in events:
            key.data(mask)
        inbox, pool = self._inbox, self.pool
        while inbox:
            item = inbox.popleft()
            if isinstance(item, RemoteCall):
                pool.add_call(item)
            else:
                item()
        now = time.monotonic()
        self._send_calls(now)
        self._maintain(now)

    def _select_timeout(self) -> float | None:
        """Return the seconds until there is something to do; None: until an event."""
        now = time.monotonic()
        times = [self.autoscaler.next_action_at(self.pool, now), self._recheck_at, self._shutdown_deadline]
        times += [connection.opened_at + AUTHENTICATION_SECONDS_MAX for connection in self._unauthenticated]
        known = [moment for moment in times if moment is not None]
        return max(0.0, min(known) - now) if known else None

    def _drain_wakeups(self, _: int) -> None:
        self._wake_receiver.recv(4_096)

    def _send_calls(self, now: float) -> None:
        for worker, calls in self.pool.assign(now):
            connection: WorkerConnection = worker.connection
            for call in calls:
                call.sent_by_name = bool(call.function.name)
            try:
                connection.send_calls(
                    [(call.number, call.function, call.packed, call.inputs) for call in calls]
                )
            except CONNECTION_ERRORS:
                self._on_worker_lost(worker)
                continue
            self._update_events(connection)
        recalls, recheck_seconds = self.pool.find_recalls(now)
        self._recheck_at = None if recheck_seconds is None else now + recheck_seconds
        for worker, count in recalls:
            self._send(worker, Recall((), count))

    def _send(self, worker: PooledWorker, message: Message) -> None:
        connection: WorkerConnection = worker.connection
        try:
            connection.send(message)
        except CONNECTION_ERRORS:
            self._on_worker_lost(worker)
            return
        self._update_events(connection)

    # --- connections

    def _accept(self, _: int) -> None:
        try:
            accepted, _address = self._listener.accept()
        except OSError:
            return
        connection = WorkerConnection(accepted, self._settings, time.monotonic())
        self._unauthenticated[connection] = None
        self._registered_events[connection] = selectors.EVENT_READ
        self._selector.register(
            accepted, selectors.EVENT_READ, lambda mask: self._serve_unauthenticated(connection, mask)
        )
        self._update_listening()

    def _update_listening(self) -> None:
        """Accept connections only while not too many others are without proof."""
        should_listen = len(self._unauthenticated) < UNAUTHENTICATED_MAX
        if should_listen and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._listening and not should_listen:
            self._selector.unregister(self._listener)
        self._listening = should_listen

    def _serve_unauthenticated(self, connection: WorkerConnection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                connection.write()
            if mask & selectors.EVENT_READ and connection.receive():
                raise FrameError("a worker that sends messages before it has calls")
        except CONNECTION_ERRORS as error:
            if isinstance(error, (FrameError, ssl.SSLError)):
                self.refusals.record(connection, str(error))
            self._close_connection(connection)
            return
        if connection.ready:
            self._add_worker(connection)
        self._update_events(connection)

    def _add_worker(self, connection: WorkerConnection) -> None:
        """Add a worker that has proved its key."""
        hello = connection.hello
        assert hello is not None
        del self._unauthenticated[connection]
        self._update_listening()
        for worker in list(self.pool.workers):
            if (worker.job, worker.index) == (hello.job, hello.index):  # the league has started it again
                self._on_worker_lost(worker)
        worker = PooledWorker(
            hello.job, hello.index, hello.attempt, hello.cluster, connection, time.monotonic()
        )
        self.pool.workers.append(worker)
        self.autoscaler.on_worker_connected(hello.job, hello.index)
        self._notify_waiters()
        self._selector.modify(
            connection.socket,
            self._registered_events[connection],
            lambda mask: self._serve_worker(worker, mask),
        )

    def add_worker_waiter(self, count: int, event: threading.Event) -> None:
        """Set an event when this many workers are connected. Runs in this thread."""
        self._worker_waiters.append((count, event))
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        for count, event in self._worker_waiters:
            if len(self.pool.workers) >= count or self.autoscaler.refusal or self._end_reason:
                event.set()
        self._worker_waiters = [(count, event) for count, event in self._worker_waiters if not event.is_set()]

    def _serve_worker(self, worker: PooledWorker, mask: int) -> None:
        connection: WorkerConnection = worker.connection
        try:
            if mask & selectors.EVENT_WRITE:
                connection.write()
            if mask & selectors.EVENT_READ:
                for message in connection.receive():
                    self._on_message(worker, message)
        except CONNECTION_ERRORS as error:
            if isinstance(error, (FrameError, ssl.SSLError)):
                self.refusals.record(connection, f"worker {worker.task}: {error}")
            self._on_worker_lost(worker)
            return
        self._update_events(connection)

    def _update_events(self, connection: WorkerConnection) -> None:
        """Wait for a writable socket as long as output waits."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.has_output else 0)
        if connection in self._registered_events and self._registered_events[connection] != events:
            self._registered_events[connection] = events
            self._selector.modify(connection.socket, events, self._selector.get_key(connection.socket).data)

    def _close_connection(self, connection: WorkerConnection) -> None:
        if connection in self._unauthenticated:
            del self._unauthenticated[connection]
            self._update_listening()
        if self._registered_events.pop(connection, None) is not None:
            self._selector.unregister(connection.socket)
        connection.close()

    def _on_worker_lost(self, worker: PooledWorker) -> None:
        """Remove a worker that has ended, as requested or not."""
        if worker not in self.pool.workers:
            return
        failed = self.pool.on_worker_lost(worker)
        self._close_connection(worker.connection)
        if failed:
            self._lost_calls[worker] = failed
            listener = self._posting_to_thread(partial(self._on_worker_exit, worker))
            self._provisioner.find_exit(worker.job, worker.index, worker.attempt, listener)

    def _on_worker_exit(self, worker: PooledWorker, worker_exit: WorkerExit) -> None:
        """Fail a lost worker's calls when the league has reported its end."""
        text = f"{worker_exit.to_sentence()}; its call may not be repeated"
        for call in self._lost_calls.pop(worker):
            call.future.set_exception(
                WorkerLostError(text, worker_exit.task, worker_exit.code, worker_exit.note)
            )

    # --- messages of workers

    def _on_message(self, worker: PooledWorker, message: Message) -> None:
        if isinstance(message, Results):
            self._delivery.on_results(worker, message)
        elif isinstance(message, ReturnedCalls):
            for call in self.pool.on_returned(worker, message.numbers):
                call.future._set_cancelled()
        elif isinstance(message, PayloadPiece):
            worker.connection.assembler.add_piece(message)
        else:
            raise FrameError(f"the message {type(message).__name__} is not for an executor")

    # --- number of workers

    def _maintain(self, now: float) -> None:
        autoscaler, pool = self.autoscaler, self.pool
        if self._closing and not pool.pending_count() and not self.deferred_calls and not self._lost_calls:
            self._shut_down_workers(now)
            return
        count = autoscaler.workers_to_request(pool, now)
        if count:
            autoscaler.request_pending = True
            needed = not pool.workers and not autoscaler.starting_count()
            self._provisioner.request_workers(
                count,
                autoscaler.max_workers is None,
                needed,
                self._posting_to_thread(self._on_workers_answer),
            )
        for job, indices in autoscaler.find_due_checks(now):
            self._provisioner.check_workers(
                job, indices, self._posting_to_thread(partial(self._on_workers_checked, job))
            )
        for worker in autoscaler.find_idle(pool, now):
            self._dismiss_worker(worker)
        for connection in [
            connection
            for connection in self._unauthenticated
            if now - connection.opened_at > AUTHENTICATION_SECONDS_MAX
        ]:
            self.refusals.record(connection, "no proof of a key in time")
            self._close_connection(connection)
        if autoscaler.refusal and len(pool) and not pool.workers and not autoscaler.starting_count():
            self._fail_waiting_calls(autoscaler.refusal)

    def _posting_to_thread(self, work: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that calls ``work`` in this thread."""
        return lambda answer: self.post(lambda: work(answer))

    def _on_workers_answer(self, answer: WorkerJob | WorkerRefusal) -> None:
        now = time.monotonic()
        if isinstance(answer, WorkerJob):
            self.autoscaler.on_worker_job(answer, now)
            return
        reason = self.autoscaler.on_refusal(answer, now)
        self._notify_waiters()
        if not self.pool.workers and not self.autoscaler.starting_count():
            self._fail_waiting_calls(reason)

    def _on_workers_checked(self, job: str, exits: list[tuple[int, WorkerExit]]) -> None:
        reason = self.autoscaler.on_checked(job, exits, time.monotonic())
        if reason and not self.pool.workers:
            self._fail_waiting_calls(f"workers end before they connect: {reason}")

    def _fail_waiting_calls(self, reason: str) -> None:
        """Fail the waiting calls, because no worker will take them."""
        for call in self.pool.clear():
            if call.begun or call.future._set_running():
                call.future.set_exception(NoWorkersError(reason))

    def _dismiss_worker(self, worker: PooledWorker) -> None:
        worker.closing = True
        self._send(worker, Bye())

    # --- cancelling and closing

    def cancel_call(self, number: int) -> None:
        """Recall a call from its worker. Runs in this thread."""
        for worker in list(self.pool.workers):
            if number in worker.outstanding:
                worker.outstanding[number].cancelled = True
                self._send(worker, Recall((number,), 0))
                return
        for call in self.pool.waiting_calls():
            if call.number == number:
                call.cancelled = True

    def _close(self, cancel: bool) -> None:
        self._closing = True
        if not cancel:
            return
        for call in list(self.pool.waiting_calls()):
            call.cancelled = True
            if not call.begun:
                call.future.cancel()
        for worker in list(self.pool.workers):
            numbers = tuple(worker.outstanding)
            for call in worker.outstanding.values():
                call.cancelled = True
            if numbers:
                self._send(worker, Recall(numbers, 0))

    def _shut_down_workers(self, now: float) -> None:
        """Release the workers when no call is left, and end with the last worker."""
        if self._shutdown_deadline is None:
            self._shutdown_deadline = now + SHUTDOWN_SECONDS_MAX
        for worker in list(self.pool.workers):
            if not worker.closing:
                self._dismiss_worker(worker)
            elif now >= self._shutdown_deadline:
                self._unfinished_jobs.append(worker.job)
                self._on_worker_lost(worker)
        if not self.pool.workers:
            self._done = True

    def _clean_up(self, bug: BaseException | None) -> None:
        """Release everything and fail the calls that are left."""
        self._awake = True
        self._end_reason = "the executor has shut down" if bug is None else f"bug in the executor: {bug!r}"
        calls = self.pool.clear()
        for worker in self.pool.workers:
            calls += worker.outstanding.values()
        for lost_calls in self._lost_calls.values():
            calls += lost_calls
        self._inbox.extendleft(calls)
        self._fail_inbox()
        self._notify_waiters()
        for connection in list(self._registered_events):
            self._close_connection(connection)
        self._selector.close()
        self._listener.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        self._provisioner.cancel_jobs(list(dict.fromkeys([*self.autoscaler.missing, *self._unfinished_jobs])))
        self._provisioner.stop()
        self._delivery.load_stored_results()
        if self._settings.store is not None:
            self._settings.store.close()
        if bug is not None:
            sys.excepthook(type(bug), bug, bug.__traceback__)


def _raise(error: BaseException) -> None:
    """Raise a bug of another thread here, so that this thread ends and waiting calls fail."""
    raise error
