"""What can go wrong with a call, as exceptions that its future raises."""


class SdkError(RuntimeError):
    """Everything that this package raises by itself; what a user's own function raises comes as it is."""


class NotAllowedError(SdkError):
    """The league does not let us: the token has expired, it or the certificate was revoked, or the role may
    not do this."""


class HandLostError(SdkError):
    """The hand that a call was given to ended before the result came, as often as it may be tried again."""

    def __init__(self, message: str, task: str = "", code: int | None = None, note: str = "") -> None:
        super().__init__(message)
        self.task = task
        """The hand as a task of the league, such as ``1-7.0``."""
        self.code = code
        """Its exit code, or minus the signal that ended it; None: the league does not say."""
        self.note = note
        """What the league noted about its end: out of memory, say."""


class NoHandsError(SdkError):
    """The league gives no hands: it refused their job, cannot be reached, or none of them comes to life."""


class DependencyFailedError(SdkError):
    """A future among the arguments has no result, so the call was not made. The reason is ``__cause__``."""


class CannotTravelError(SdkError):
    """A function, an argument or a result cannot be pickled, or not be unpickled at the other end."""


class CallExitedError(SdkError):
    """The function raised ``SystemExit``, ``KeyboardInterrupt`` or the like. That ends the call only."""


class RemoteTracebackError(SdkError):
    """The traceback in the hand, as text; stands as the ``__cause__`` of what the function raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class TooManyCallsError(SdkError):
    """More calls wait in an executor than it keeps."""


class JobFailedError(SdkError):
    """A job that was waited for did not succeed."""


class JobRefusedError(SdkError):
    """The league did not take a job."""
