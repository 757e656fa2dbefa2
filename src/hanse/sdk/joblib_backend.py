"""joblib backend: ``register(); with joblib.parallel_config("hanse"): joblib.Parallel()(...)``.

joblib passes a batch of calls as one object, which is sent like any other call. joblib is not a dependency:
this module needs it installed, here and on the workers' machines.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from joblib import register_parallel_backend  # type: ignore[import-untyped]  # joblib has no types
from joblib.parallel import ParallelBackendBase  # type: ignore[import-untyped]  # as above

from hanse.sdk.executor import Executor

WORKER_WAIT_SECONDS: Final = 30.0
"""Seconds to wait for the first worker when joblib asks for their number."""


class HanseBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """joblib backend over a pool of workers. Further arguments are those of ``hanse.Executor``."""

    supports_retrieve_callback = True
    supports_sharedmem = False
    uses_threads = False

    def __init__(
        self,
        executor: Executor | None = None,
        resources: Mapping[str, object] | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._user_executor = executor
        self._executor = executor
        self._resources = resources
        self._options = options

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of parallel calls: ``n_jobs``; if negative or None, the number of workers."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        pool = self._get_executor(1)
        pool.wait_for_workers(1, WORKER_WAIT_SECONDS)
        return max(1, pool.worker_count)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Prepare for calls; return how many run at once."""
        self.parallel = parallel
        count = self.effective_n_jobs(n_jobs)
        self._get_executor(count)
        return count

    def _get_executor(self, count: int) -> Executor:
        if self._executor is None:
            options = {"max_workers": (min(count, 1), None), **self._options}
            self._executor = Executor(self._resources, name="joblib", **options)
        return self._executor

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Any:
        """Run a batch; ``callback`` gets its future when it is done."""
        future = self._get_executor(1).submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """Return the result of a batch that is done."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the calls that have not begun."""
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def terminate(self) -> None:
        """Release the workers if this backend created them."""
        if self._executor is not None and self._user_executor is None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def register() -> None:
    """Register the backend with joblib as ``hanse``."""
    register_parallel_backend("hanse", HanseBackend)
