"""Dispatcher: the thread that admits an executor's workers, sends them calls and takes results.

One thread uses ``selectors`` for any number of workers and owns all state. Other threads put calls and
functions into its inbox.
"""

import queue
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from hanse.sdk.errors import NoWorkersError, SdkError, WorkerLostError
from hanse.sdk.result_delivery import ResultDelivery
from hanse.sdk.workers.autoscaler import Autoscaler
from hanse.sdk.workers.connection_events import ConnectionEvents
from hanse.sdk.workers.dispatcher_inbox import DispatcherInbox
from hanse.sdk.workers.provisioner import Provisioner, WorkerExit, WorkerJob, WorkerRefusal
from hanse.sdk.workers.refused_connections import RefusedConnections
from hanse.sdk.workers.worker_admission import WorkerAdmission
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

SHUTDOWN_SECONDS_MAX: Final = 10.0
"""Seconds that workers may take to end with their executor; then the league ends them."""
ASK_POLL_SECONDS: Final = 1.0
"""Interval at which a thread that waits for an answer checks whether this thread has ended."""

Answer = TypeVar("Answer")


class Dispatcher(threading.Thread):
    """Dispatcher thread. Other threads use the methods of the first section, ``submit_call`` and ``post``."""

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
        self._inbox = DispatcherInbox()
        self.submit_call = self._inbox.put_call
        """Submits a call. For any thread."""
        self.post = self._inbox.put
        """Has a function called in this thread. For any thread."""
        self._events = ConnectionEvents()
        self._closing = False
        self._done = False
        self._shutdown_deadline: float | None = None
        """Deadline for workers to end when the executor closes."""
        self._unfinished_jobs: list[str] = []
        """Jobs of workers that did not end when they were released."""
        self._recheck_at: float | None = None
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
        self._admission = WorkerAdmission(listener, settings, self._events, self.refusals, self._add_worker)
        self._events.watch_socket(self._inbox.wake_receiver, self._inbox.drain_wakeups)

    # --- for other threads

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
                if self._inbox.end_reason:
                    raise SdkError(self._inbox.end_reason) from None

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
        timeout = self._select_timeout() if self._inbox.prepare_sleep() else 0.0
        events = self._events.select(timeout)
        self._inbox.end_sleep()
        for key, mask in events:
            key.data(mask)
        for item in self._inbox.take_items():
            if isinstance(item, RemoteCall):
                self.pool.add_call(item)
            else:
                item()
        now = time.monotonic()
        self._send_calls(now)
        self._maintain(now)

    def _select_timeout(self) -> float | None:
        """Return the seconds until there is something to do; None: until an event."""
        now = time.monotonic()
        times = [
            self.autoscaler.next_action_at(self.pool, now),
            self._recheck_at,
            self._shutdown_deadline,
            self._admission.next_deadline(),
        ]
        known = [moment for moment in times if moment is not None]
        return max(0.0, min(known) - now) if known else None

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
            self._events.update(connection)
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
        self._events.update(connection)

    # --- workers that come and go

    def _add_worker(self, connection: WorkerConnection) -> None:
        """Add a worker that was admitted."""
        hello = connection.hello
        assert hello is not None
        for worker in list(self.pool.workers):
            if (worker.job, worker.index) == (hello.job, hello.index):  # the league has started it again
                self._on_worker_lost(worker)
        worker = PooledWorker(
            hello.job, hello.index, hello.attempt, hello.cluster, connection, time.monotonic()
        )
        self.pool.workers.append(worker)
        self.autoscaler.on_worker_connected(hello.job, hello.index)
        self._notify_waiters()
        self._events.set_handler(connection, lambda mask: self._serve_worker(worker, mask))

    def add_worker_waiter(self, count: int, event: threading.Event) -> None:
        """Set an event when this many workers are connected. Runs in this thread."""
        self._worker_waiters.append((count, event))
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        for count, event in self._worker_waiters:
            if len(self.pool.workers) >= count or self.autoscaler.refusal or self._inbox.end_reason:
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
        self._events.update(connection)

    def _on_worker_lost(self, worker: PooledWorker) -> None:
        """Remove a worker that has ended, as requested or not."""
        if worker not in self.pool.workers:
            return
        failed = self.pool.on_worker_lost(worker)
        self._events.close_connection(worker.connection)
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
        self._admission.close_late(now)
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
        reason = "the executor has shut down" if bug is None else f"bug in the executor: {bug!r}"
        calls = self.pool.clear()
        for worker in self.pool.workers:
            calls += worker.outstanding.values()
        for lost_calls in self._lost_calls.values():
            calls += lost_calls
        self._inbox.end(reason, calls)
        self._notify_waiters()
        self._events.close()
        self._listener.close()
        self._inbox.close()
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
