"""Status of a call that has not ended: why it waits, when it may end, its worker's output."""

import threading
from typing import Any

from hanse.client.client import Client
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.sdk.client_pool import plainly
from hanse.sdk.errors import SdkError
from hanse.sdk.future import Eta, Future, eta_of
from hanse.sdk.task_output import output
from hanse.sdk.workers.dispatcher import Exchange
from hanse.sdk.workers.worker_pool import Call, Member

UNHEARD = "the league does not answer"


class Explainer:
    """Explainer of calls: answers the questions of futures, in their own threads."""

    def __init__(self, doors: Doors, exchange: Exchange) -> None:
        self._exchange = exchange
        self._doors = doors
        self._lock = threading.Lock()
        """Serializes requests: ``Endpoints`` are for one thread at a time."""

    def tell(self, future: Future[Any], question: str) -> Any:
        """Answer one of ``cancel``, ``why``, ``eta`` and ``logs``."""
        if question == "cancel":
            number = future._number
            self._exchange.post(lambda: self._exchange.cancel(number))
            return None
        if question == "logs":
            return self._logs(future.hand)
        number = future._number
        place = self._exchange.ask(lambda: self._place(number))
        return self._why(future, place) if question == "why" else self._eta(future, place)

    def _place(self, number: int) -> "tuple[Member | None, int, Call | None]":
        """Find the worker that has a call and count the calls before it, in the worker or in the queue.

        Runs in the dispatcher's thread.
        """
        for member in self._exchange.crew.members:
            for ahead, (held, call) in enumerate(member.outstanding.items()):
                if held == number:
                    return member, ahead, call
        for ahead, call in enumerate(self._exchange.crew.waiting()):
            if call.number == number:
                return None, ahead, call
        return None, 0, None

    def _why(self, future: Future[Any], place: "tuple[Member | None, int, Call | None]") -> str:
        member, ahead, call = place
        if future.done():
            where = f" in {future.cluster}, in worker {future.hand}" if future.hand else ""
            ended = "was cancelled" if future.cancelled() else "failed" if future.exception() else "ended"
            return f"The call {ended}{where}."
        if member is not None:
            behind = f", behind {ahead} other calls" if ahead else ""
            return f"Worker {member.task} in {member.cluster} has the call{behind}."
        if call is None:
            return "The call waits for the results of other calls, which are its arguments."
        muster = self._exchange.muster
        hands = len(self._exchange.crew.members)
        said = [f"The call waits for a worker, behind {ahead} other calls; {hands} workers are connected."]
        jobs = list(muster.missing)
        if muster.refused:
            said.append(f"The league starts no workers: {muster.refused}.")
        for job in jobs[:1]:
            said.append(f"{muster.starting()} more are starting, as job {job}.")
            said += self._asked_why(job)
        return " ".join(said)

    def _asked_why(self, job: str) -> tuple[str, ...]:
        with self._lock:
            doors = self._doors.another()
            try:
                return Client(doors).why(job).sentences
            except CommandError as error:
                return (f"{UNHEARD}: {error.message}.",)
            finally:
                doors.close()

    def _eta(self, future: Future[Any], place: "tuple[Member | None, int, Call | None]") -> Eta:
        member, ahead, call = place
        if future.done():
            return Eta(0.0, 0.0, 0.0)
        if call is None:
            return Eta(unknown="the call waits for the results of other calls")
        hands = len(self._exchange.crew.members)
        if member is None and not hands:
            return Eta(unknown="no worker is connected yet; call why() for the reason")
        behind = ahead if member is not None else 1 + ahead / hands
        return eta_of(behind, list(call.function.seconds))

    def _logs(self, task: str) -> str:
        if not task:
            return ""
        job, _, index = task.rpartition(".")
        with self._lock:
            doors = self._doors.another()
            try:
                rows = (
                    Client(doors).tasks(job, limit=1, after=str(int(index) - 1) if int(index) else "").tasks
                )
                if not rows:
                    raise SdkError(f"the league does not know the task {task}")
                streams = [output(doors, task, rows[0], stream) for stream in ("stdout", "stderr")]
            except CommandError as error:
                raise plainly(error) from None
            finally:
                doors.close()
        return b"".join(streams).decode(errors="replace")
