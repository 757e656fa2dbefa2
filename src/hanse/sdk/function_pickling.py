"""Pickling of functions: by name where the other side can import them, otherwise by value.

Pickling by name is cheap and needs the module on the other side. Pickling by value (``cloudpickle``) is for
functions that have no name there: those of ``__main__``, lambdas, functions inside functions. Such a function
is pickled once, at its first use, with the global variables it reads as they are then.
"""

import importlib
import sys
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from hanse.sdk.serialization import NOTHING, Packed, cloud_packed, owned, pack

FUNCTIONS_MAX: Final = 1_000
"""Functions that an executor remembers. Beyond it, the oldest is forgotten and sent again at its next use."""

NAMED: Final = (FunctionType, BuiltinFunctionType, type)


def name_of(function: Callable[..., Any]) -> str:
    """Return ``module:qualified.name`` if the function can be found by it, else an empty string."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name:
        return ""
    try:
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
    except (KeyError, AttributeError):
        return ""
    if found is not function and getattr(found, "function", None) is not function:  # the latter: hanse.task
        return ""
    return f"{module}:{name}"


def named(name: str) -> Callable[..., Any]:
    """Import the function with that name. Raises ``ImportError`` or ``AttributeError``."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    result: Callable[..., Any] = found
    return result


def apply(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a callable sent with the arguments: a method, a partial function or another callable object."""
    return function(*args, **kwargs)


def apply_each(function: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    """Make several calls of one function: a chunk of ``map``."""
    return [function(*row) for row in rows]


class Traveller:
    """Function that an executor sends to its workers."""

    __slots__ = ("function", "name", "number", "packed", "seconds")

    def __init__(self, number: int, function: Callable[..., Any], name: str) -> None:
        self.number = number
        self.function = function
        self.name = name
        self.packed: Packed = NOTHING
        """Function by value, once that was needed."""
        self.seconds: list[float] = []
        """Durations of recent calls; see ``estimate_eta``."""

    def by_value(self) -> None:
        """Send the function by value from now on. Raises ``SerializationError``."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        what = f"the function {getattr(self.function, '__qualname__', self.function)!r}"
        if not self.name or module is None:
            self.packed = owned(cloud_packed(self.function, what))
            return
        import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415  only functions by value need it

        cloudpickle.register_pickle_by_value(module)
        try:
            self.packed = owned(cloud_packed(self.function, what))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        self.name = ""


class Registry:
    """Registry of an executor's functions by number. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[Callable[..., Any], Traveller] = {}
        self._chunked: dict[Callable[..., Any], Traveller] = {}
        self._next = 1

    def of(self, function: Callable[..., Any]) -> Traveller | None:
        """Return the entry of a function; None if it must be sent with the arguments of every call."""
        try:
            found = self._known.get(function)
        except TypeError:  # not hashable
            return None
        if found is not None:
            return found
        if not isinstance(function, NAMED):
            return None
        traveller = Traveller(self._next, function, name_of(function))
        if not traveller.name:
            traveller.by_value()
        self._next += 1
        if len(self._known) >= FUNCTIONS_MAX:
            del self._known[next(iter(self._known))]
        self._known[function] = traveller
        return traveller

    def each(self, function: Callable[..., Any]) -> Traveller:
        """Return the entry for chunks of a function. Raises ``SerializationError``."""
        found = self._chunked.get(function)
        if found is None:
            chunked = partial(apply_each, function)
            found = Traveller(self._next, chunked, "")
            found.packed = owned(pack(chunked, f"the function {function!r}"))
            self._next += 1
            if len(self._chunked) >= FUNCTIONS_MAX:
                del self._chunked[next(iter(self._chunked))]
            self._chunked[function] = found
        return found
