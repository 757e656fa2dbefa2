"""Delivery of workers' results to the futures that wait for them."""

import time
import weakref
from typing import Any

from hanse.sdk.errors import CannotTravelError, SdkError
from hanse.sdk.function_pickling import Traveller
from hanse.sdk.future import Future
from hanse.sdk.remote_errors import failure
from hanse.sdk.serialization import Packed, unpack
from hanse.sdk.shared_store import Spool
from hanse.sdk.workers.worker_connection import Link
from hanse.sdk.workers.worker_pool import SAMPLES_MAX, Call, Crew, Member
from hanse.sdk.workers.worker_protocol import UNKNOWN, VALUE, FrameError, Outcome, Parcel, Results


class Settler:
    """Delivery of results. Used by the dispatcher's thread."""

    def __init__(self, spool: Spool | None, crew: Crew) -> None:
        self._spool = spool
        self.crew = crew
        self._stored: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        """Futures with results in the shared store."""

    def unspool(self) -> None:
        """Load all stored results into memory before the shared store is removed."""
        for future in list(self._stored):
            future._unspool()

    def take(self, member: Member, results: Results) -> None:
        """Deliver the results of a worker. Raises ``FrameError`` if the worker does not have those calls."""
        outcomes, outstanding = results.outcomes, member.outstanding
        size = 0
        function = None
        for outcome in outcomes:
            call = outstanding.pop(outcome.number, None)
            if call is None:
                raise FrameError(f"a result of call {outcome.number}, which this worker does not have")
            parcel = outcome.parcel
            size += sum(parcel.sizes) if parcel.sizes else len(parcel.body)
            if outcome.status == VALUE and not parcel.sizes and not parcel.buffers:
                self._settle(call, parcel.body)
            else:
                self._settle_other(member, call, outcome)
            function = call.function
        if function is not None:
            seconds = results.busy * 1e-9
            samples = function.seconds
            samples.append(seconds / len(outcomes))
            if len(samples) > SAMPLES_MAX:
                del samples[0]
            member.finished(len(outcomes), seconds, size, time.monotonic())

    def _settle(self, call: Call, body: bytes) -> None:
        """Deliver the most frequent result: a small value."""
        try:
            value = unpack((body,))
        except BaseException as error:  # noqa: BLE001  a user's class may raise anything
            call.future.set_exception(_unreadable(error))
        else:
            call.future.set_result(value)

    def _settle_other(self, member: Member, call: Call, outcome: Outcome) -> None:
        """Deliver a large value or a failure."""
        if outcome.status == UNKNOWN and call.named and self._by_value(call.function):
            self.crew.put_back([call])
            return
        try:
            packed = self._opened(member, outcome.parcel)
            if outcome.status == VALUE and packed.file is not None and call.future._wanted_by_calls:
                self._stored.add(call.future)
                call.future.set_result(packed)
                return
            value = unpack(packed.parts())
        except BaseException as error:  # noqa: BLE001  as above
            call.future.set_exception(_unreadable(error))
            return
        if outcome.status == VALUE:
            call.future.set_result(value)
        else:
            call.future.set_exception(failure(outcome.status, value))

    def _by_value(self, function: Traveller) -> bool:
        """Send a function by value that a worker cannot import; False if it cannot be pickled."""
        if not function.name:  # another worker reported it before
            return True
        try:
            function.by_value()
        except SdkError:
            return False
        for member in self.crew.members:
            member.link.forget(function)
        return True

    def _opened(self, member: Member, parcel: Parcel) -> Packed:
        """Return a payload's data, or its file, which this side now owns."""
        link: Link = member.link
        if parcel.file:
            spool = self._spool
            if spool is None:
                raise FrameError("a file in a shared store, and this executor has none")
            return Packed.stored(spool.taken(parcel.file), parcel.sizes)
        body, *buffers = link.assembly.parts(parcel, _no_file)
        return Packed(body, buffers)


def _no_file(name: str, size: int) -> bytearray:
    raise FrameError(f"{name} ({size} bytes) is not a file of this shared store")


def _unreadable(error: BaseException) -> CannotTravelError:
    wrapped = CannotTravelError(f"the result cannot be unpickled here: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
