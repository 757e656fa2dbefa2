"""Future result of a call, with the league's information about it."""

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import _base
from typing import Any, Final, NamedTuple, TypeVar

from hanse.sdk.errors import SerializationError
from hanse.sdk.serialization import PickledValue, unpack

T = TypeVar("T")
_QUANTILES: Final = (0.1, 0.5, 0.9)


class Eta(NamedTuple):
    """Expected end of a call, in seconds from now; None if unknown, with the reason."""

    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    unknown: str = ""


class Future(concurrent.futures.Future[T]):
    """``concurrent.futures.Future`` that also knows where its call is.

    Passed as an argument, it makes that call wait for its result.
    """

    _call_number = 0
    """Number of the call."""
    _is_input = False
    """True if it is an argument of other calls."""
    _cluster = ""
    _task = ""
    _ask_executor: "Callable[[Future[Any], str], Any] | None" = None
    """Function of the executor that answers ``why``, ``eta``, ``logs`` and ``cancel``."""

    @property
    def cluster(self) -> str:
        """Cluster of the worker that has or had the call; empty: none yet."""
        return self._cluster

    @property
    def worker(self) -> str:
        """Worker that has or had the call, as a task such as ``1-7.0``; empty: none yet."""
        return self._task

    def cancel(self) -> bool:
        """Cancel the call if it has not begun.

        Return True if the call waited in this process: it is cancelled at once. A call that a worker already
        has is recalled, and False is returned: if it has not begun, the future is cancelled a moment later; a
        running call goes on, and its result counts.
        """
        if super().cancel():
            self._notify_waiters()
            return True
        if not self.done() and self._ask_executor is not None:
            self._ask_executor(self, "cancel")
        return False

    def result(self, timeout: float | None = None) -> T:
        """Return the result as ``concurrent.futures.Future.result`` does; read it now if it is in a file."""
        value = super().result(timeout)
        if isinstance(value, PickledValue):
            return self._load(value)
        return value

    def why(self) -> str:
        """Explain in sentences why the call waits or where it runs."""
        return str(self._ask("why"))

    def eta(self) -> Eta:
        """Estimate when the call ends."""
        if self.done():
            return Eta(0.0, 0.0, 0.0)
        answer = self._ask("eta")
        return answer if isinstance(answer, Eta) else Eta(unknown="its executor has shut down")

    def logs(self) -> str:
        """Return the output of the call's worker; it includes the output of the worker's other calls."""
        return str(self._ask("logs"))

    def _ask(self, question: str) -> Any:
        return (
            self._ask_executor(self, question)
            if self._ask_executor is not None
            else "its executor has shut down"
        )

    def _load(self, packed: PickledValue) -> T:
        """Load a result that stayed in the shared store because other calls need it."""
        with self._condition:
            if self._result is packed:
                try:
                    self._result = unpack(packed.read_parts())
                except Exception as error:
                    raise SerializationError(f"the result cannot be loaded: {error}") from error
            value: Any = self._result
        result: T = value
        return result

    def _stored_result(self) -> PickledValue | None:
        """Return the result if it is in a file and not in memory."""
        value: object = self._result
        return value if isinstance(value, PickledValue) else None

    def _load_to_memory(self) -> None:
        """Load the result into memory before the shared store is removed."""
        packed = self._stored_result()
        if packed is not None:
            packed.load_to_memory()

    def _set_running(self) -> bool:
        """Mark the call as running when a worker gets it; False if it was cancelled."""
        with self._condition:
            if self._state != _base.PENDING:
                return False
            self._state = _base.RUNNING
            return True

    def _set_cancelled(self) -> None:
        """Cancel the future after a worker gave its call back."""
        with self._condition:
            if self._state == _base.RUNNING:
                self._state = _base.PENDING
        super().cancel()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Notify waiters of a cancelled call; ``concurrent.futures`` does so only when a call would begin."""
        with self._condition:
            if self._state == _base.CANCELLED:
                self._state = _base.CANCELLED_AND_NOTIFIED
                for waiter in self._waiters:
                    waiter.add_cancelled(self)


def estimate_eta(ahead: float, seconds: list[float]) -> Eta:
    """Estimate the end of a call that ``ahead`` calls of the same kind precede in its worker.

    ``seconds``: how long recent calls of the function took, in any order.
    """
    ordered = sorted(seconds)
    if not ordered:
        return Eta(unknown="no call of this function has ended yet")
    low, middle, high = (ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in _QUANTILES)
    wait = ahead * sum(ordered) / len(ordered)
    return Eta(wait + low, wait + middle, wait + high)
