"""Hanse: a league of autonomous clusters that act as one machine.

The rooms, from the top: ``cli`` (command line), ``sdk`` (Python programs) and ``learning`` (learned
policies), ``client`` (of a league), ``live`` and ``sim`` (the two shells), ``api`` (HTTP records),
``security`` (certificates and tokens), ``core`` (the sans-IO machines), ``policy`` (pure decisions over
columns), ``model`` (records). Imports go downwards only; see ``ARCHITECTURE.md``.

For programs: ``hanse.Executor``, ``hanse.Client``, ``hanse.AsyncClient``, ``hanse.Future``, ``hanse.Job``,
``hanse.task`` and the errors; see ``docs/user/sdk.md``. Each is imported when it is first used, which keeps
``import hanse`` fast.
"""

if not __debug__:  # without assertions a broken invariant would go unnoticed
    raise RuntimeError("hanse cannot run under 'python -O', which removes its safety checks. Run without -O.")

TYPE_CHECKING = False  # type checkers treat it as true; importing ``typing`` for it would cost 10 ms
if TYPE_CHECKING:
    from hanse.sdk.async_client import AsyncClient
    from hanse.sdk.client import Client
    from hanse.sdk.errors import (
        CallExitedError,
        DependencyFailedError,
        JobFailedError,
        JobRefusedError,
        NotAllowedError,
        NoWorkersError,
        RemoteTracebackError,
        SdkError,
        SerializationError,
        TooManyCallsError,
        WorkerLostError,
    )
    from hanse.sdk.executor import Executor
    from hanse.sdk.future import Eta, Future
    from hanse.sdk.job import Job
    from hanse.sdk.task import task

__version__ = "0.1.0"

_MODULES = {
    "AsyncClient": "async_client",
    "Client": "client",
    "Eta": "future",
    "Executor": "executor",
    "Future": "future",
    "Job": "job",
    "task": "task",
    **dict.fromkeys(
        (
            "CallExitedError",
            "DependencyFailedError",
            "JobFailedError",
            "JobRefusedError",
            "NoWorkersError",
            "NotAllowedError",
            "RemoteTracebackError",
            "SdkError",
            "SerializationError",
            "TooManyCallsError",
            "WorkerLostError",
        ),
        "errors",
    ),
}
"""Module of ``hanse.sdk`` that defines each public name."""

__all__ = [
    "AsyncClient",
    "CallExitedError",
    "Client",
    "DependencyFailedError",
    "Eta",
    "Executor",
    "Future",
    "Job",
    "JobFailedError",
    "JobRefusedError",
    "NoWorkersError",
    "NotAllowedError",
    "RemoteTracebackError",
    "SdkError",
    "SerializationError",
    "TooManyCallsError",
    "WorkerLostError",
    "__version__",
    "task",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'hanse' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415  keeps ``import hanse`` fast

    value: object = getattr(import_module(f"hanse.sdk.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
