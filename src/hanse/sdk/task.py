"""``@hanse.task``: a function with the resources that it needs in the league."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from hanse.sdk.client import Client, current_client
from hanse.sdk.future import Future

P = ParamSpec("P")
T = TypeVar("T")


class Task(Generic[P, T]):
    """Function with resources. A plain call runs it here; ``submit`` and ``map`` run it in the league."""

    def __init__(
        self,
        function: Callable[P, T],
        resources: Mapping[str, object],
        retries: int | None,
        client: Client | None,
    ) -> None:
        self.function = function
        self.resources = dict(resources)
        self.retries = retries
        self._client = client
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function here."""
        return self.function(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the function in the league, by the client of the innermost ``with`` block or of the process."""
        client = self._client or current_client()
        pool = client.executor(self.resources)
        retries = client._retries if self.retries is None else self.retries
        return pool.submit_call(self.function, args, kwargs, retries)

    def map(self, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 0) -> Iterator[T]:
        """Run ``map`` in the league."""
        client = self._client or current_client()
        return client.map(
            self.function, *iterables, resources=self.resources, timeout=timeout, chunksize=chunksize
        )


def task(
    *, retries: int | None = None, client: Client | None = None, **resources: object
) -> Callable[[Callable[P, T]], Task[P, T]]:
    """Declare the needs of a function: ``@hanse.task(cpus=2, memory="1GiB", retries=3)``."""

    def decorate(function: Callable[P, T]) -> Task[P, T]:
        return Task(function, resources, retries, client)

    return decorate
