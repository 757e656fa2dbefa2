"""Delivery of workers' results to the futures that wait for them."""

import time
import weakref
from typing import Any

from hanse.sdk.errors import CallExitedError, RemoteTracebackError, SdkError, SerializationError
from hanse.sdk.function_pickling import RemoteFunction
from hanse.sdk.future import Future
from hanse.sdk.serialization import PickledValue, unpack
from hanse.sdk.shared_store import SharedStore
from hanse.sdk.workers.worker_connection import WorkerConnection
from hanse.sdk.workers.worker_pool import SAMPLES_MAX, PooledWorker, RemoteCall, WorkerPool
from hanse.sdk.workers.worker_protocol import (
    BROKEN,
    FUNCTION_NOT_FOUND,
    RAISED,
    VALUE,
    CallOutcome,
    FrameError,
    Payload,
    Results,
)


class ResultDelivery:
    """Delivery of results. Used by the dispatcher's thread."""

    def __init__(self, store: SharedStore | None, pool: WorkerPool) -> None:
        self._store = store
        self.pool = pool
        self._stored_futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        """Futures with results in the shared store."""

    def load_stored_results(self) -> None:
        """Load all stored results into memory before the shared store is removed."""
        for future in list(self._stored_futures):
            future._load_to_memory()

    def on_results(self, worker: PooledWorker, results: Results) -> None:
        """Deliver the results of a worker. Raises ``FrameError`` if the worker does not have those calls."""
        outcomes, outstanding = results.outcomes, worker.outstanding
        size = 0
        function = None
        for outcome in outcomes:
            call = outstanding.pop(outcome.number, None)
            if call is None:
                raise FrameError(f"a result of call {outcome.number}, which this worker does not have")
            payload = outcome.payload
            size += sum(payload.sizes) if payload.sizes else len(payload.body)
            if outcome.status == VALUE and not payload.sizes and not payload.buffers:
                self._deliver_value(call, payload.body)
            else:
                self._deliver_outcome(worker, call, outcome)
            function = call.function
        if function is not None:
            seconds = results.busy_ns * 1e-9
            samples = function.seconds
            samples.append(seconds / len(outcomes))
            if len(samples) > SAMPLES_MAX:
                del samples[0]
            worker.on_calls_finished(len(outcomes), seconds, size, time.monotonic())

    def _deliver_value(self, call: RemoteCall, body: bytes) -> None:
        """Deliver the most frequent result: a small value."""
        try:
            value = unpack((body,))
        except BaseException as error:  # noqa: BLE001  a user's class may raise anything
            call.future.set_exception(_unpickling_error(error))
        else:
            call.future.set_result(value)

    def _deliver_outcome(self, worker: PooledWorker, call: RemoteCall, outcome: CallOutcome) -> None:
        """Deliver a large value or a failure."""
        if (
            outcome.status == FUNCTION_NOT_FOUND
            and call.sent_by_name
            and self._switch_to_value(call.function)
        ):
            self.pool.put_back([call])
            return
        try:
            packed = self._receive_payload(worker, outcome.payload)
            if outcome.status == VALUE and packed.file is not None and call.future._is_input:
                self._stored_futures.add(call.future)
                call.future.set_result(packed)
                return
            value = unpack(packed.read_parts())
        except BaseException as error:  # noqa: BLE001  as above
            call.future.set_exception(_unpickling_error(error))
            return
        if outcome.status == VALUE:
            call.future.set_result(value)
        else:
            call.future.set_exception(exception_of_outcome(outcome.status, value))

    def _switch_to_value(self, function: RemoteFunction) -> bool:
        """Send a function by value that a worker cannot import; False if it cannot be pickled."""
        if not function.name:  # another worker reported it before
            return True
        try:
            function.pickle_by_value()
        except SdkError:
            return False
        for worker in self.pool.workers:
            worker.connection.forget_function(function)
        return True

    def _receive_payload(self, worker: PooledWorker, payload: Payload) -> PickledValue:
        """Return a payload's data, or its file, which this side now owns."""
        connection: WorkerConnection = worker.connection
        if payload.file:
            store = self._store
            if store is None:
                raise FrameError("a file in a shared store, and this executor has none")
            return PickledValue.from_file(store.take_ownership(payload.file), payload.sizes)
        body, *buffers = connection.assembler.take_parts(payload, _refuse_file)
        return PickledValue(body, buffers)


def _refuse_file(name: str, size: int) -> bytearray:
    raise FrameError(f"{name} ({size} bytes) is not a file of this shared store")


def _unpickling_error(error: BaseException) -> SerializationError:
    wrapped = SerializationError(f"the result cannot be unpickled here: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def exception_of_outcome(status: int, value: Any) -> BaseException:
    """Return the exception for an outcome that is no value."""
    if status in (BROKEN, FUNCTION_NOT_FOUND):
        return SerializationError(str(value))
    assert status == RAISED, status
    error, text, summary, exit_name = value
    if exit_name:
        error = CallExitedError(f"the function raised {summary}; this ended the call, not the worker")
    elif error is None:
        error = SdkError(f"{summary} (the exception itself cannot be pickled)")
    result: BaseException = error
    result.__cause__ = RemoteTracebackError(text)
    return result
