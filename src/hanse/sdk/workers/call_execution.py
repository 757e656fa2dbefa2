"""Execution of one call in a worker: its function, its arguments, and the outcome to send back."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hanse.sdk.errors import SerializationError
from hanse.sdk.function_pickling import find_function
from hanse.sdk.serialization import Buffer, Input, PickledValue, pack, unpack
from hanse.sdk.workers.worker_protocol import BROKEN, FUNCTION_NOT_FOUND, RAISED, VALUE, Payload

PayloadReader = Callable[[Payload], Sequence[Buffer]]
"""Function that returns the parts of a value, wherever the executor put them."""


class ReceivedFunction:
    """Received function, imported or unpickled at its first call."""

    __slots__ = ("_function", "_name", "_parts")

    def __init__(self, name: str, parts: Sequence[Buffer]) -> None:
        self._name = name
        self._parts: Sequence[Buffer] = parts
        self._function: Callable[..., Any] | None = None

    def get(self) -> Callable[..., Any]:
        """Return the function; raises whatever its import or its unpickling raises."""
        if self._function is None:
            self._function = find_function(self._name) if self._name else unpack(self._parts)
            self._parts = ()
        return self._function


class QueuedCall:
    """Call that waits in the worker."""

    __slots__ = ("function", "inputs", "number", "parts")

    def __init__(
        self,
        number: int,
        function: ReceivedFunction,
        parts: Sequence[Buffer] | Payload,
        inputs: tuple[tuple[int, Payload], ...],
    ) -> None:
        self.number = number
        self.function = function
        self.parts = parts
        """Arguments; a payload in the shared store is read just before the call."""
        self.inputs = inputs


def make_call(call: QueuedCall, read_payload: PayloadReader) -> tuple[int, PickledValue]:
    """Make one call and return its outcome: a status of the protocol, and the value or the error."""
    try:
        function = call.function.get()
    except BaseException as error:  # noqa: BLE001  an import may raise anything
        return FUNCTION_NOT_FOUND, _pack_error_text(error, "the function cannot be loaded")
    try:
        parts = call.parts
        if isinstance(parts, Payload):
            parts = read_payload(parts)
        args, kwargs = unpack(parts)
        if call.inputs:
            args, kwargs = _with_inputs(args, kwargs, call.inputs, read_payload)
        del parts
    except BaseException as error:  # noqa: BLE001  a user's class may raise anything
        return BROKEN, _pack_error_text(error, "the arguments cannot be unpickled")
    call.parts = ()
    try:
        value = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  an outcome like any other: the worker goes on
        return RAISED, _pack_exception(error)
    try:
        return VALUE, pack(value, f"the result, {_type_text(value)},")
    except SerializationError as error:
        return BROKEN, pack(str(error), "a sentence")


def _with_inputs(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: tuple[tuple[int, Payload], ...],
    read_payload: PayloadReader,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the results of other calls put in."""
    values = {number: unpack(read_payload(payload)) for number, payload in inputs}
    return (
        tuple(substitute_inputs(argument, values) for argument in args),
        {name: substitute_inputs(argument, values) for name, argument in kwargs.items()},
    )


def substitute_inputs(argument: Any, values: dict[int, Any]) -> Any:
    """Replace placeholders in an argument, also one level inside, by results."""
    if isinstance(argument, Input):
        return values[argument.number]
    kind = type(argument)
    if kind is list or kind is tuple:
        return kind([values[one.number] if isinstance(one, Input) else one for one in argument])
    if kind is dict:
        return {name: values[one.number] if isinstance(one, Input) else one for name, one in argument.items()}
    return argument


def _type_text(value: object) -> str:
    """Describe a value by its type, because its own text may fail."""
    return f"of type {type(value).__name__}"


def _pack_error_text(error: BaseException, problem: str) -> PickledValue:
    """Describe an error of the worker, not of the function."""
    text = f"{problem} in this worker ({sys.executable}, Python {sys.version.split()[0]}): "
    return pack(f"{text}{type(error).__name__}: {error}", "a sentence")


def _pack_exception(error: BaseException) -> PickledValue:
    """Pack an exception with its traceback, or a description if it cannot be pickled."""
    import traceback  # noqa: PLC0415  only failures need it

    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None  # this module's own frame does not help the user
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    exit_name = "" if isinstance(error, Exception) else type(error).__name__
    summary = f"{type(error).__name__}: {error}"
    try:
        packed = pack((error.with_traceback(None), text, summary, exit_name), "the exception")
        unpack([packed.body, *packed.buffers])  # some exceptions can be pickled but not unpickled
    except Exception:  # noqa: BLE001  a user's class may raise anything
        return pack((None, text, summary, exit_name), "a sentence")
    return packed
