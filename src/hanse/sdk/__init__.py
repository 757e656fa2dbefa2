"""The league from Python programs: calls that run in its hands, and jobs as objects.

The public names are in ``hanse`` itself: ``hanse.Executor``, ``hanse.Client``, ``hanse.AsyncClient``,
``hanse.Future`` and ``hanse.task``. How it works is in ``docs/sdk.md``.
"""
