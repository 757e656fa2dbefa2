"""Exceptions for calls that did not return in a worker."""

from typing import Any

from hanse.sdk.errors import CallExitedError, CannotTravelError, RemoteTracebackError, SdkError
from hanse.sdk.workers.worker_protocol import BROKEN, RAISED, UNKNOWN


def failure(status: int, value: Any) -> BaseException:
    """Return the exception for an outcome that is no value."""
    if status in (BROKEN, UNKNOWN):
        return CannotTravelError(str(value))
    assert status == RAISED, status
    error, text, said, ended = value
    if ended:
        error = CallExitedError(f"the function raised {said}; this ended the call, not the worker")
    elif error is None:
        error = SdkError(f"{said} (the exception itself cannot be pickled)")
    result: BaseException = error
    result.__cause__ = RemoteTracebackError(text)
    return result
