"""Exceptions for calls that did not return in a worker."""

from typing import Any

from hanse.sdk.errors import CallExitedError, RemoteTracebackError, SdkError, SerializationError
from hanse.sdk.workers.worker_protocol import BROKEN, FUNCTION_NOT_FOUND, RAISED


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
