"""Python interface to a league: calls that run in its workers, and jobs as objects.

The public names are in ``hanse`` itself: ``hanse.Executor``, ``hanse.Client``, ``hanse.AsyncClient``,
``hanse.Future`` and ``hanse.task``. ``docs/user/sdk.md`` explains them.
"""
