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

from hanse.sdk.serialization import NO_ARGUMENTS, PickledValue, copy_buffers, pack, pack_with_cloudpickle

FUNCTIONS_MAX: Final = 1_000
"""Functions that an executor remembers. Beyond it, the oldest is forgotten and sent again at its next use."""

NAMEABLE_TYPES: Final = (FunctionType, BuiltinFunctionType, type)


def importable_name(function: Callable[..., Any]) -> str:
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


def find_function(name: str) -> Callable[..., Any]:
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


class RemoteFunction:
    """Function that an executor sends to its workers."""

    __slots__ = ("function", "name", "number", "packed", "seconds")

    def __init__(self, number: int, function: Callable[..., Any], name: str) -> None:
        self.number = number
        self.function = function
        self.name = name
        self.packed: PickledValue = NO_ARGUMENTS
        """Function by value, once that was needed."""
        self.seconds: list[float] = []
        """Durations of recent calls; see ``estimate_eta``."""

    def pickle_by_value(self) -> None:
        """Send the function by value from now on. Raises ``SerializationError``."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        description = f"the function {getattr(self.function, '__qualname__', self.function)!r}"
        if not self.name or module is None:
            self.packed = copy_buffers(pack_with_cloudpickle(self.function, description))
            return
        import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415  only functions by value need it

        cloudpickle.register_pickle_by_value(module)
        try:
            self.packed = copy_buffers(pack_with_cloudpickle(self.function, description))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        self.name = ""


class FunctionRegistry:
    """Registry of an executor's functions by number. For one thread at a time."""

    def __init__(self) -> None:
        self._functions: dict[Callable[..., Any], RemoteFunction] = {}
        self._chunk_functions: dict[Callable[..., Any], RemoteFunction] = {}
        self._next_number = 1

    def register(self, function: Callable[..., Any]) -> RemoteFunction | None:
        """Return the entry of a function; None if it must be sent with the arguments of every call."""
        try:
            found = self._functions.get(function)
        except TypeError:  # not hashable
            return None
        if found is not None:
            return found
        if not isinstance(function, NAMEABLE_TYPES):
            return None
        remote = RemoteFunction(self._next_number, function, importable_name(function))
        if not remote.name:
            remote.pickle_by_value()
        self._next_number += 1
        if len(self._functions) >= FUNCTIONS_MAX:
            del self._functions[next(iter(self._functions))]
        self._functions[function] = remote
        return remote

    def register_chunked(self, function: Callable[..., Any]) -> RemoteFunction:
        """Return the entry for chunks of a function. Raises ``SerializationError``."""
        found = self._chunk_functions.get(function)
        if found is None:
            chunked = partial(apply_each, function)
            found = RemoteFunction(self._next_number, chunked, "")
            found.packed = copy_buffers(pack(chunked, f"the function {function!r}"))
            self._next_number += 1
            if len(self._chunk_functions) >= FUNCTIONS_MAX:
                del self._chunk_functions[next(iter(self._chunk_functions))]
            self._chunk_functions[function] = found
        return found
