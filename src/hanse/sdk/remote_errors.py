"""What a hand reports of a call that did not return, as an exception here."""

from typing import Any

from hanse.sdk.errors import CallExitedError, CannotTravelError, RemoteTracebackError, SdkError
from hanse.sdk.workers.worker_protocol import BROKEN, RAISED, UNKNOWN


def failure(status: int, value: Any) -> BaseException:
    """The exception for an outcome that is no value."""
    if status in (BROKEN, UNKNOWN):
        return CannotTravelError(str(value))
    assert status == RAISED, status
    error, text, said, ended = value
    if ended:
        error = CallExitedError(f"the function ended with {said}; that ends a call, not the hand")
    elif error is None:
        error = SdkError(f"{said} (the exception itself cannot be pickled)")
    result: BaseException = error
    result.__cause__ = RemoteTracebackError(text)
    return result
