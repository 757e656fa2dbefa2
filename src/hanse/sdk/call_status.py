"""What can be said about a call that has not ended: why it waits, when it may end, what its hand wrote."""

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
    """Answers the questions of an executor's futures, in their own threads."""

    def __init__(self, doors: Doors, exchange: Exchange) -> None:
        self._exchange = exchange
        self._doors = doors
        self._lock = threading.Lock()
        """The doors of a league are for one thread at a time."""

    def tell(self, future: Future[Any], question: str) -> Any:
        """The answer to one of ``cancel``, ``why``, ``eta`` and ``logs``."""
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
        """The hand that has a call and how many it makes before; or how many wait before it for a hand.

        In the exchange's thread.
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
            where = f" in {future.cluster} by the hand {future.hand}" if future.hand else ""
            ended = "was cancelled" if future.cancelled() else "failed" if future.exception() else "ended"
            return f"The call {ended}{where}."
        if member is not None:
            behind = f", behind {ahead} others" if ahead else ""
            return f"The hand {member.task} in {member.cluster} has the call{behind}."
        if call is None:
            return "The call waits for the results of others among its arguments."
        muster = self._exchange.muster
        hands = len(self._exchange.crew.members)
        said = [f"The call waits for a hand, behind {ahead} others; there are {hands} hands."]
        jobs = list(muster.missing)
        if muster.refused:
            said.append(f"The league gives no hands: {muster.refused}.")
        for job in jobs[:1]:
            said.append(f"{muster.starting()} more are on their way, as job {job}.")
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
            return Eta(unknown="it waits for the results of other calls")
        hands = len(self._exchange.crew.members)
        if member is None and not hands:
            return Eta(unknown="there are no hands yet; why() says what they wait for")
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
                    raise SdkError(f"the league does not know {task}")
                streams = [output(doors, task, rows[0], stream) for stream in ("stdout", "stderr")]
            except CommandError as error:
                raise plainly(error) from None
            finally:
                doors.close()
        return b"".join(streams).decode(errors="replace")
