"""One submission, one job, also when its first broker came back too late.

A broker takes a job, and dies before a copy of it has reached its heir. The submitter, unanswered, submits it
to another broker under the same client id. When the first one comes back it must not run the job as well. So
a job that is admitted late (after a restart, after an adoption that missed it, or because its heir could not
be reached for long) is *doubtful*: every peer that can be reached is asked for its client id first. If one
knows it, the job here never was. Nobody was told that it was accepted, so nothing is lost.

What cannot be known remains: a peer that has the other job and cannot be reached while we ask; and a
submission that reaches a peer after it has answered and before we are done.
"""

from collections.abc import Callable, Iterable
from typing import Any

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.owned_shards import EstatesState
from hanse.core.broker.failover.standby import Wards
from hanse.core.broker.job_lifecycle import Careers
from hanse.core.broker.job_table import JobRecord
from hanse.model.effects import Rejected
from hanse.model.ids import JobId, job_text
from hanse.model.messages.duplicate_check import Seek, Sought


class Seeking:
    """Doubtful jobs of one broker, and its answers about those of others."""

    def __init__(
        self, desk: Desk, careers: Careers, state: Callable[[], EstatesState],
        reached: Callable[[str], bool], again: Callable[[list[JobRecord]], None],
    ) -> None:  # fmt: skip
        self.desk, self.careers = desk, careers
        self._state = state
        self._reached = reached
        self._again = again
        """Called with jobs of which more is known: admit them, if nothing else speaks against it."""
        self.dropped: Callable[[JobRecord], None] = lambda _: None
        """Called with a job that never was: its heir must forget it."""
        self._wards: Wards | None = None

    def handlers(self, wards: Wards) -> dict[type, Callable[[str, Any], None]]:
        """Who takes which message."""
        self._wards = wards
        return {Seek: self.asked, Sought: self.answered}

    def doubt(self, records: Iterable[JobRecord]) -> None:
        """These may have been submitted elsewhere meanwhile, unless they have been acknowledged."""
        doubtful = self._state().doubtful
        for record in records:
            if not record.admitted and record.spec.client_id and self.desk.members.peers:
                doubtful.setdefault(record.id, {})

    def holds(self, record: JobRecord) -> bool:
        """Whether a job that is safe with its heir must wait for peers to answer."""
        doubtful = self._state().doubtful
        if self.desk.now - record.accepted_at > self.desk.timings.suspect_after:
            self.doubt((record,))
        answers = doubtful.get(record.id)
        if answers is None:
            return False
        desk, waits = self.desk, False
        for peer in desk.members.peers:
            if answers.get(peer) or not self._reached(peer):
                continue
            waits = True
            if peer not in answers and not desk.post.link(peer).crowded:  # else with a later beat
                answers[peer] = False
                desk.post.send(desk.out, desk.now, peer, Seek(record.id, record.spec.client_id))
        if not waits:
            del doubtful[record.id]
        return waits

    def review(self) -> None:
        """With every beat: peers may have come or gone."""
        doubtful = self._state().doubtful
        waiting = []
        for job in list(doubtful):
            record = self.desk.jobs.get(job)
            if record is None or record.admitted:
                del doubtful[job]
            else:
                waiting.append(record)
        if waiting:
            self._again(waiting)

    def answered(self, peer: str, message: Sought) -> None:
        """A peer knows the client id of a doubtful job, or does not."""
        answers = self._state().doubtful.get(message.job)
        record = self.desk.jobs.get(message.job)
        if answers is None or record is None or record.admitted or peer not in answers:
            return
        if not message.known:
            answers[peer] = True
            self._again([record])
            return
        self.desk.mark("broker.dropped_duplicate")
        del self._state().doubtful[message.job]
        self.careers.superseded(record, JobId(message.known))
        self.dropped(record)
        if record.client:
            reason = f"client_id: the league has this job already, as {job_text(JobId(message.known))}"
            self.desk.out.append(Rejected(record.client, record.request, reason))

    def asked(self, peer: str, message: Seek) -> None:
        """A peer has a doubtful job: say under which other number we know it. Of two doubtful ones the lower
        number stays."""
        known = self.careers.clients.get(message.client_id)
        if known is None and self._wards is not None:
            known = self._wards.named(message.client_id)
        if known == message.job or (known in self._state().doubtful and message.job < (known or 0)):
            known = None
        self.desk.post.send(self.desk.out, self.desk.now, peer, Sought(message.job, known or 0))
