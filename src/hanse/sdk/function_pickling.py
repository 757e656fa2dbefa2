"""How functions travel: by name where the other end can import them, by value otherwise.

By name costs nothing and needs the module at the other end. By value (``cloudpickle``) is for what has no
name there: functions of ``__main__``, lambdas, functions inside functions. A function by value is pickled
once, when it is first used: what it remembers of global variables is as of then.
"""

import importlib
import sys
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from hanse.sdk.serialization import NOTHING, Packed, cloud_packed, owned, pack

FUNCTIONS_MAX: Final = 1_000
"""Functions that an executor remembers; beyond it the oldest is forgotten, and sent again when it is used."""

NAMED: Final = (FunctionType, BuiltinFunctionType, type)


def name_of(function: Callable[..., Any]) -> str:
    """``module:qualified.name`` if that finds the function again, else nothing."""
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
    """The function of that name. Raises ``ImportError`` or ``AttributeError``."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    result: Callable[..., Any] = found
    return result


def apply(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what came with the arguments: methods, partial functions and other objects that can be called."""
    return function(*args, **kwargs)


def apply_each(function: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    """Several calls of one function as one: a chunk of ``map``."""
    return [function(*row) for row in rows]


class Traveller:
    """A function as the executor knows it."""

    __slots__ = ("function", "name", "number", "packed", "seconds")

    def __init__(self, number: int, function: Callable[..., Any], name: str) -> None:
        self.number = number
        self.function = function
        self.name = name
        self.packed: Packed = NOTHING
        """By value, once it has been needed."""
        self.seconds: list[float] = []
        """How long recent calls took; see ``estimate``."""

    def by_value(self) -> None:
        """Let it travel by value from now on. Raises ``CannotTravelError``."""
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
    """The functions of an executor by number. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[Callable[..., Any], Traveller] = {}
        self._chunked: dict[Callable[..., Any], Traveller] = {}
        self._next = 1

    def of(self, function: Callable[..., Any]) -> Traveller | None:
        """The traveller for a function; None if it must go with the arguments of every call."""
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
        """The traveller for chunks of a function. Raises ``CannotTravelError``."""
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
