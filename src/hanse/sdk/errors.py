"""Exceptions that calls, jobs and their futures raise."""


class SdkError(RuntimeError):
    """Base of the errors of this package; exceptions of a user's own function are raised unchanged."""


class NotAllowedError(SdkError):
    """Denied access: the token expired, it or the certificate was revoked, or the role forbids this."""


class WorkerLostError(SdkError):
    """Loss of a call's worker before it returned the result, with no retry left."""

    def __init__(self, message: str, task: str = "", code: int | None = None, note: str = "") -> None:
        super().__init__(message)
        self.task = task
        """Worker as a task of the league, such as ``1-7.0``."""
        self.code = code
        """Exit code of the worker, or minus the signal that ended it; None: unknown."""
        self.note = note
        """Note of the league about the worker's end, such as out of memory."""


class NoWorkersError(SdkError):
    """Lack of workers: the league refused their job, cannot be reached, or they all end too early."""


class DependencyFailedError(SdkError):
    """Failure of a future among the arguments, so the call was not made. ``__cause__`` is the reason."""


class SerializationError(SdkError):
    """Function, argument or result that cannot be pickled, or not unpickled on the other side."""


class CallExitedError(SdkError):
    """``SystemExit``, ``KeyboardInterrupt`` or similar, raised by the function. Only the call ends."""


class RemoteTracebackError(SdkError):
    """Text of the traceback in the worker; the ``__cause__`` of the function's exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class TooManyCallsError(SdkError):
    """Refusal of a call, because its executor has too many unfinished calls."""


class JobFailedError(SdkError):
    """Job that did not succeed."""


class JobRefusedError(SdkError):
    """Refusal of a job by the league."""
