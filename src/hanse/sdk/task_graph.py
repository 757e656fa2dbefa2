"""Graph of calls: a call waits for the results of the futures among its arguments."""

import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hanse.sdk.errors import DependencyFailedError
from hanse.sdk.future import Future
from hanse.sdk.serialization import Input, Packed, pack_call

Wanted = concurrent.futures.Future[Any]
GoOn = Callable[[Packed | None, tuple[tuple[int, Packed], ...]], None]


def futures_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Wanted, ...]:
    """Return the futures among the arguments, also one level inside lists, tuples and dictionaries."""
    found: list[Wanted] = []
    for argument in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(argument, concurrent.futures.Future):
            found.append(argument)
        elif type(argument) in (list, tuple, dict):
            found += [one for one in _inside(argument) if isinstance(one, concurrent.futures.Future)]
    return tuple(found)


def _inside(argument: Any) -> Iterator[Any]:
    return iter(argument.values()) if isinstance(argument, dict) else iter(argument)


class Held:
    """Call that waits for its futures. The thread in which the last future ends continues with the call."""

    def __init__(
        self,
        future: Future[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wanted: tuple[Wanted, ...],
        go_on: GoOn,
    ) -> None:
        self._future = future
        self._args = args
        self._kwargs = kwargs
        self._wanted = wanted
        self._go_on = go_on
        """Callback that is called once: with the arguments, or with None if the call is not to be made."""
        self._left = len(wanted)
        self._lock = threading.Lock()
        self._gone = False

    def watch(self) -> None:
        """Start to wait."""
        self._future.add_done_callback(lambda _: self._leave())  # the call may be cancelled meanwhile
        for wanted in self._wanted:
            if isinstance(wanted, Future):
                wanted._wanted_by_calls = True
            wanted.add_done_callback(self._one_done)

    def _one_done(self, _: Wanted) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            packed, inputs = self._packed()
        except BaseException as error:  # noqa: BLE001  in a callback it would be lost
            if self._future._begin():
                self._future.set_exception(error)
            return
        self._leave(packed, inputs)

    def _leave(self, packed: Packed | None = None, inputs: tuple[tuple[int, Packed], ...] = ()) -> None:
        with self._lock:
            gone, self._gone = self._gone, True
        if not gone:
            self._go_on(packed, inputs)
            self._args, self._kwargs, self._wanted = (), {}, ()

    def _packed(self) -> tuple[Packed, tuple[tuple[int, Packed], ...]]:
        """Return the arguments with the results put in; results in files stay there."""
        numbers = itertools.count(1)
        values: dict[Wanted, Any] = {}
        inputs: list[tuple[int, Packed]] = []
        for wanted in self._wanted:
            if wanted in values:
                continue
            failed = "was cancelled" if wanted.cancelled() else "failed" if wanted.exception() else ""
            if failed:
                error = DependencyFailedError(f"another call, an argument of this one, {failed}")
                raise error from (None if wanted.cancelled() else wanted.exception())
            stored = wanted._stored() if isinstance(wanted, Future) else None
            if stored is None:
                values[wanted] = wanted.result()
            else:
                values[wanted] = Input(next(numbers))
                inputs.append((values[wanted].number, stored))
        args = tuple(_put_in(argument, values) for argument in self._args)
        kwargs = {name: _put_in(argument, values) for name, argument in self._kwargs.items()}
        return pack_call(args, kwargs), tuple(inputs)


def _put_in(argument: Any, values: dict[Wanted, Any]) -> Any:
    if isinstance(argument, concurrent.futures.Future):
        return values[argument]
    kind = type(argument)
    if kind is list or kind is tuple:
        return kind([values[one] if isinstance(one, concurrent.futures.Future) else one for one in argument])
    if kind is dict:
        return {
            name: values[one] if isinstance(one, concurrent.futures.Future) else one
            for name, one in argument.items()
        }
    return argument
