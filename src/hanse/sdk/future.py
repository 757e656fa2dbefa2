"""The result of a call that is still to come, with what the league can say about it."""

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import _base
from typing import Any, Final, NamedTuple, TypeVar

from hanse.sdk.errors import CannotTravelError
from hanse.sdk.serialization import Packed, unpack

T = TypeVar("T")
_QUANTILES: Final = (0.1, 0.5, 0.9)


class Eta(NamedTuple):
    """When a call is expected to end, in seconds from now; None where nobody can tell, with the reason."""

    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    unknown: str = ""


class Future(concurrent.futures.Future[T]):
    """A ``concurrent.futures.Future`` that knows where its call is.

    As an argument of another call it makes that call wait for its result.
    """

    _number = 0
    """Of the call."""
    _wanted_by_calls = False
    """Whether it is an argument of other calls."""
    _cluster = ""
    _task = ""
    _tell: "Callable[[Future[Any], str], Any] | None" = None
    """How to ask the executor: for ``why``, ``eta``, ``logs`` or ``cancel``."""

    @property
    def cluster(self) -> str:
        """The cluster whose hand has the call, or had it; empty: none yet."""
        return self._cluster

    @property
    def hand(self) -> str:
        """The hand that has the call, as a task of the league such as ``1-7.0``; empty: none yet."""
        return self._task

    def cancel(self) -> bool:
        """Cancel the call if it has not begun.

        A call that still waits in this process is cancelled at once, and True is the answer. One that a hand
        has already is asked back, and False is the answer: if it had not begun, the future becomes cancelled
        a moment later; a call that runs goes on, and its result counts.
        """
        if super().cancel():
            self._tell_waiters()
            return True
        if not self.done() and self._tell is not None:
            self._tell(self, "cancel")
        return False

    def result(self, timeout: float | None = None) -> T:
        """As ``concurrent.futures.Future.result``; a result that lies in a file is read now."""
        value = super().result(timeout)
        if isinstance(value, Packed):
            return self._loaded(value)
        return value

    def why(self) -> str:
        """Why it waits or where it runs, in sentences."""
        return str(self._told("why"))

    def eta(self) -> Eta:
        """When it is expected to end."""
        if self.done():
            return Eta(0.0, 0.0, 0.0)
        told = self._told("eta")
        return told if isinstance(told, Eta) else Eta(unknown="its executor has ended")

    def logs(self) -> str:
        """What the hand that has or had the call has written: of this call and of its others."""
        return str(self._told("logs"))

    def _told(self, question: str) -> Any:
        return self._tell(self, question) if self._tell is not None else "its executor has ended"

    def _loaded(self, packed: Packed) -> T:
        """The value of a result that was left in the spool because other calls wanted it."""
        with self._condition:
            if self._result is packed:
                try:
                    self._result = unpack(packed.parts())
                except Exception as error:
                    raise CannotTravelError(f"the result cannot be read: {error}") from error
            value: Any = self._result
        loaded: T = value
        return loaded

    def _stored(self) -> Packed | None:
        """The result, if it lies in a file and not in memory."""
        value: object = self._result
        return value if isinstance(value, Packed) else None

    def _unspool(self) -> None:
        """The spool goes: take the result out of it."""
        packed = self._stored()
        if packed is not None:
            packed.unspool()

    def _begin(self) -> bool:
        """A hand gets the call; False: it has been cancelled."""
        with self._condition:
            if self._state != _base.PENDING:
                return False
            self._state = _base.RUNNING
            return True

    def _withdrawn(self) -> None:
        """A hand gave the call back that was to be cancelled."""
        with self._condition:
            if self._state == _base.RUNNING:
                self._state = _base.PENDING
        super().cancel()
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        """``concurrent.futures`` tells who waits only when the call would have begun; that may be never."""
        with self._condition:
            if self._state == _base.CANCELLED:
                self._state = _base.CANCELLED_AND_NOTIFIED
                for waiter in self._waiters:
                    waiter.add_cancelled(self)


def eta_of(ahead: float, seconds: list[float]) -> Eta:
    """Expected end of a call that ``ahead`` others of its kind precede in its hand.

    ``seconds``: how long recent calls of the function took, in no order.
    """
    ordered = sorted(seconds)
    if not ordered:
        return Eta(unknown="no call of this function has ended yet")
    low, middle, high = (ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in _QUANTILES)
    wait = ahead * sum(ordered) / len(ordered)
    return Eta(wait + low, wait + middle, wait + high)
