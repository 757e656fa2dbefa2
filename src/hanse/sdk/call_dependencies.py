"""Graph of calls: a call waits for the results of the futures among its arguments."""

import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hanse.sdk.errors import DependencyFailedError
from hanse.sdk.future import Future
from hanse.sdk.serialization import Input, PickledValue, pack_call

Dependency = concurrent.futures.Future[Any]
ReadyCallback = Callable[[PickledValue | None, tuple[tuple[int, PickledValue], ...]], None]


def find_futures(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Dependency, ...]:
    """Return the futures among the arguments, also one level inside lists, tuples and dictionaries."""
    found: list[Dependency] = []
    for argument in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(argument, concurrent.futures.Future):
            found.append(argument)
        elif type(argument) in (list, tuple, dict):
            found += [one for one in _iterate_items(argument) if isinstance(one, concurrent.futures.Future)]
    return tuple(found)


def _iterate_items(argument: Any) -> Iterator[Any]:
    return iter(argument.values()) if isinstance(argument, dict) else iter(argument)


class DependentCall:
    """Call that waits for its futures. The thread in which the last future ends continues with the call."""

    def __init__(
        self,
        future: Future[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dependencies: tuple[Dependency, ...],
        on_ready: ReadyCallback,
    ) -> None:
        self._future = future
        self._args = args
        self._kwargs = kwargs
        self._dependencies = dependencies
        self._on_ready = on_ready
        """Callback that is called once: with the arguments, or with None if the call is not to be made."""
        self._remaining = len(dependencies)
        self._lock = threading.Lock()
        self._finished = False

    def start(self) -> None:
        """Start to wait."""
        self._future.add_done_callback(lambda _: self._finish())  # the call may be cancelled meanwhile
        for dependency in self._dependencies:
            if isinstance(dependency, Future):
                dependency._is_input = True
            dependency.add_done_callback(self._on_dependency_done)

    def _on_dependency_done(self, _: Dependency) -> None:
        with self._lock:
            self._remaining -= 1
            if self._remaining:
                return
        try:
            packed, inputs = self._pack_arguments()
        except BaseException as error:  # noqa: BLE001  in a callback it would be lost
            if self._future._set_running():
                self._future.set_exception(error)
            return
        self._finish(packed, inputs)

    def _finish(
        self, packed: PickledValue | None = None, inputs: tuple[tuple[int, PickledValue], ...] = ()
    ) -> None:
        with self._lock:
            was_finished, self._finished = self._finished, True
        if not was_finished:
            self._on_ready(packed, inputs)
            self._args, self._kwargs, self._dependencies = (), {}, ()

    def _pack_arguments(self) -> tuple[PickledValue, tuple[tuple[int, PickledValue], ...]]:
        """Return the arguments with the results put in; results in files stay there."""
        numbers = itertools.count(1)
        values: dict[Dependency, Any] = {}
        inputs: list[tuple[int, PickledValue]] = []
        for dependency in self._dependencies:
            if dependency in values:
                continue
            failure = (
                "was cancelled" if dependency.cancelled() else "failed" if dependency.exception() else ""
            )
            if failure:
                error = DependencyFailedError(f"another call, an argument of this one, {failure}")
                raise error from (None if dependency.cancelled() else dependency.exception())
            stored_value = dependency._stored_result() if isinstance(dependency, Future) else None
            if stored_value is None:
                values[dependency] = dependency.result()
            else:
                values[dependency] = Input(next(numbers))
                inputs.append((values[dependency].number, stored_value))
        args = tuple(_substitute(argument, values) for argument in self._args)
        kwargs = {name: _substitute(argument, values) for name, argument in self._kwargs.items()}
        return pack_call(args, kwargs), tuple(inputs)


def _substitute(argument: Any, values: dict[Dependency, Any]) -> Any:
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
