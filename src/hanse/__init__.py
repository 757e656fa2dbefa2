"""Hanse: a league of autonomous clusters that act as one machine.

The rooms, from the top: ``app`` (composition root), ``learn`` (training), ``live`` and ``sim`` (the two
shells), ``core`` (the sans-IO machines), ``policy`` (pure decisions over columns), ``model`` (records).
Imports go downwards only; see ``ARCHITECTURE.md``.

For programs: ``hanse.Executor``, ``hanse.Client``, ``hanse.AsyncClient``, ``hanse.Future``, ``hanse.Job``,
``hanse.task`` and the errors; see ``docs/sdk.md``. They are imported when they are first used, so that
``import hanse`` costs nothing.
"""

if not __debug__:  # our bugs are assertions: without them a broken invariant would pass in silence
    raise RuntimeError("hanse refuses to run under 'python -O': its assertions are part of its safety")

TYPE_CHECKING = False  # type checkers take it for true; importing ``typing`` for it would cost 10 ms
if TYPE_CHECKING:
    from hanse.app.sdk.asynchronous import AsyncClient
    from hanse.app.sdk.client import Client
    from hanse.app.sdk.errors import (
        CallExitedError,
        CannotTravelError,
        DependencyFailedError,
        HandLostError,
        JobFailedError,
        JobRefusedError,
        NoHandsError,
        NotAllowedError,
        RemoteTracebackError,
        SdkError,
        TooManyCallsError,
    )
    from hanse.app.sdk.executor import Executor
    from hanse.app.sdk.future import Eta, Future
    from hanse.app.sdk.jobs import Job
    from hanse.app.sdk.task import task

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "asynchronous",
    "Client": "client",
    "Eta": "future",
    "Executor": "executor",
    "Future": "future",
    "Job": "jobs",
    "task": "task",
    **dict.fromkeys(
        (
            "CallExitedError",
            "CannotTravelError",
            "DependencyFailedError",
            "HandLostError",
            "JobFailedError",
            "JobRefusedError",
            "NoHandsError",
            "NotAllowedError",
            "RemoteTracebackError",
            "SdkError",
            "TooManyCallsError",
        ),
        "errors",
    ),
}
"""Public names and the modules of ``hanse.app.sdk`` that they live in."""

__all__ = [
    "AsyncClient",
    "CallExitedError",
    "CannotTravelError",
    "Client",
    "DependencyFailedError",
    "Eta",
    "Executor",
    "Future",
    "HandLostError",
    "Job",
    "JobFailedError",
    "JobRefusedError",
    "NoHandsError",
    "NotAllowedError",
    "RemoteTracebackError",
    "SdkError",
    "TooManyCallsError",
    "__version__",
    "task",
]


def __getattr__(name: str) -> object:
    """A public name, imported when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hanse' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415  nobody who does not come here pays for it

    value: object = getattr(import_module(f"hanse.app.sdk.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
