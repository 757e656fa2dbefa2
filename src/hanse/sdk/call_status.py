"""Status of a call that has not ended: why it waits, when it may end, its worker's output."""

import threading
from typing import Any

from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.sdk.client_pool import to_sdk_error
from hanse.sdk.errors import SdkError
from hanse.sdk.future import Eta, Future, estimate_eta
from hanse.sdk.task_output import read_output
from hanse.sdk.workers.dispatcher import Dispatcher
from hanse.sdk.workers.worker_pool import PooledWorker, RemoteCall

NO_ANSWER = "the league does not answer"


class CallExplainer:
    """Explainer of calls: answers the questions of futures, in their own threads."""

    def __init__(self, endpoints: Endpoints, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._endpoints = endpoints
        self._lock = threading.Lock()
        """Serializes requests: ``Endpoints`` are for one thread at a time."""

    def answer(self, future: Future[Any], question: str) -> Any:
        """Answer one of ``cancel``, ``why``, ``eta`` and ``logs``."""
        if question == "cancel":
            number = future._call_number
            self._dispatcher.post(lambda: self._dispatcher.cancel_call(number))
            return None
        if question == "logs":
            return self._logs(future.worker)
        number = future._call_number
        place = self._dispatcher.ask(lambda: self._find_call(number))
        return self._why(future, place) if question == "why" else self._eta(future, place)

    def _find_call(self, number: int) -> "tuple[PooledWorker | None, int, RemoteCall | None]":
        """Find the worker that has a call and count the calls before it, in the worker or in the queue.

        Runs in the dispatcher's thread.
        """
        for worker in self._dispatcher.pool.workers:
            for ahead, (number_held, call) in enumerate(worker.outstanding.items()):
                if number_held == number:
                    return worker, ahead, call
        for ahead, call in enumerate(self._dispatcher.pool.waiting_calls()):
            if call.number == number:
                return None, ahead, call
        return None, 0, None

    def _why(self, future: Future[Any], place: "tuple[PooledWorker | None, int, RemoteCall | None]") -> str:
        worker, ahead, call = place
        if future.done():
            where = f" in {future.cluster}, in worker {future.worker}" if future.worker else ""
            ended = "was cancelled" if future.cancelled() else "failed" if future.exception() else "ended"
            return f"The call {ended}{where}."
        if worker is not None:
            queue_text = f", behind {ahead} other calls" if ahead else ""
            return f"Worker {worker.task} in {worker.cluster} has the call{queue_text}."
        if call is None:
            return "The call waits for the results of other calls, which are its arguments."
        autoscaler = self._dispatcher.autoscaler
        workers = len(self._dispatcher.pool.workers)
        sentences = [
            f"The call waits for a worker, behind {ahead} other calls; {workers} workers are connected."
        ]
        jobs = list(autoscaler.missing)
        if autoscaler.refusal:
            sentences.append(f"The league starts no workers: {autoscaler.refusal}.")
        for job in jobs[:1]:
            sentences.append(f"{autoscaler.starting_count()} more are starting, as job {job}.")
            sentences += self._job_reasons(job)
        return " ".join(sentences)

    def _job_reasons(self, job: str) -> tuple[str, ...]:
        with self._lock:
            endpoints = self._endpoints.copy()
            try:
                return LeagueClient(endpoints).why(job).sentences
            except CommandError as error:
                return (f"{NO_ANSWER}: {error.message}.",)
            finally:
                endpoints.close()

    def _eta(self, future: Future[Any], place: "tuple[PooledWorker | None, int, RemoteCall | None]") -> Eta:
        worker, ahead, call = place
        if future.done():
            return Eta(0.0, 0.0, 0.0)
        if call is None:
            return Eta(unknown="the call waits for the results of other calls")
        workers = len(self._dispatcher.pool.workers)
        if worker is None and not workers:
            return Eta(unknown="no worker is connected yet; call why() for the reason")
        calls_before = ahead if worker is not None else 1 + ahead / workers
        return estimate_eta(calls_before, list(call.function.seconds))

    def _logs(self, task: str) -> str:
        if not task:
            return ""
        job, _, index = task.rpartition(".")
        with self._lock:
            endpoints = self._endpoints.copy()
            try:
                rows = (
                    LeagueClient(endpoints)
                    .tasks(job, limit=1, after=str(int(index) - 1) if int(index) else "")
                    .tasks
                )
                if not rows:
                    raise SdkError(f"the league does not know the task {task}")
                streams = [read_output(endpoints, task, rows[0], stream) for stream in ("stdout", "stderr")]
            except CommandError as error:
                raise to_sdk_error(error) from None
            finally:
                endpoints.close()
        return b"".join(streams).decode(errors="replace")
