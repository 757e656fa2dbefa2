"""How accepted jobs outlive their broker: replication to an heir, and the heir's adoption of them.

A broker's accepted jobs form its *estate*. Each job is copied to the heir before it is acknowledged or run,
and what ends is told to the heir before the warden may forget it. When the owner falls silent the heir asks
every warden for the estate; only when all have agreed (each refusing the old owner from then on, and
reporting what runs there) does it act. A warden that was told of another heir refuses, which makes a stale
copy harmless. No clock is involved.
"""

from collections.abc import Sequence
from typing import Final

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.duplicate_submissions import Seeking
from hanse.core.broker.failover.end_columns import Cut
from hanse.core.broker.failover.owned_shards import EstatesState, Owned, Unknown, new_owned
from hanse.core.broker.failover.replica_updates import copies, progress
from hanse.core.broker.failover.standby import (
    ATTEMPTS_BITS,
    Latest,
    Ward,
    latest_attempts,
    place_again,
    revive,
)
from hanse.core.broker.failover.teardown import Closing
from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.broker.job_lifecycle import Careers
from hanse.core.broker.job_table import OUTCOMES, STATES, WAITING, JobRecord, new_record
from hanse.core.broker.loss_policy import unaccounted
from hanse.core.messaging.link import NEVER
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.model.effects import Accepted, JobSettled, TaskSettled
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId, job_of, task_id
from hanse.model.messages import End, Estate, EstateId, Register, Taken

PUBLISH_MAX: Final = ENTRIES_MAX
"""Ends that one event makes known; what is left follows at once, with the next."""
UNPUBLISHED_MAX: Final = 8 * PUBLISH_MAX
"""Ends that wait to be made known beyond which a cancelled job's tasks wait to be ended."""


class Estates:
    """A broker's own estates."""

    def __init__(self, desk: Desk, careers: Careers) -> None:
        self.desk = desk
        self.careers = careers
        self.state = EstatesState(0, {}, {}, {}, NEVER, [], {}, {})
        self.names: tuple[EstateId, ...] = ()
        """Those that are owned, as every beat of a warden is answered with them."""
        self.closing = Closing(desk, lambda: self.state, lambda: self.base)
        self.closing.closed = self._rename
        self.seeking = Seeking(desk, careers, lambda: self.state, self._reached, self._admit_again)
        self.seeking.dropped = self._dropped
        self.busy = True
        """Whether something may be released: more has come to wait, or what it waits for has come."""
        self._budget_of, self._budget = desk.out, PUBLISH_MAX
        """How much the event that has this list of commands may still make known."""
        desk.post.firmed = self._firmed
        careers.done, careers.done_run = self._task_done, self._tasks_done
        careers.over = self._job_over
        careers.ending.held, careers.ending.begun = self._lags, self.job_cancelled
        timings = desk.timings
        self._mute_after = timings.suspect_after + 2 * timings.resend_after
        """How long a peer may take nothing of what it is sent before it counts as out of reach."""

    @property
    def base(self) -> EstateId:
        """The estate that newly submitted jobs join."""
        return f"{self.desk.config.name}#{self.state.generation}"

    def restore(self, state: EstatesState) -> None:
        """Take a dumped state."""
        self.state = state
        self.busy = self.closing.grown = True
        self._rename()

    def _rename(self) -> None:
        """An estate has come or gone."""
        self.names = tuple(self.state.owned)

    def check(self) -> None:
        """Whether wardens are told of what is owned."""
        assert self.names == tuple(self.state.owned), f"{self.names} are not {list(self.state.owned)}"
        self.closing.check()

    # --- owning --------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Found the first estate, or remind every warden of what we own."""
        if not self.state.generation:
            self._found()
            return
        self.closing.boot()
        self.seeking.doubt(self.desk.jobs.values())
        for estate, owned in self.state.owned.items():
            if not owned.closing and not owned.copied:
                self._register(estate)

    def _found(self) -> None:
        self.state.generation += 1
        self.state.owned[self.base] = new_owned(1, self._next_heir())
        self._rename()
        self._register(self.base)

    def _register(self, estate: EstateId) -> None:
        owned = self.state.owned[estate]
        message = Register(estate, owned.term, owned.heir, owned.term in owned.accepted.values())
        for cluster in self._refused(owned):
            self.desk.post.send(self.desk.out, self.desk.now, cluster, message)

    def answered(self, cluster: str, message: Estate) -> None:
        """A warden has answered a registration."""
        owned = self.state.owned.get(message.estate)
        if owned is None:
            return
        if not message.accepted:
            self._disowned(message.estate, owned, cluster, message.owner)
        elif message.owner == self.desk.config.name:
            owned.lost_to.pop(cluster, None)
            first = message.term == owned.term and owned.term not in owned.accepted.values()
            owned.accepted[cluster] = message.term
            if first and any(term != owned.term for term in owned.accepted.values()):
                self._register(message.estate)  # sure now: opens wardens that an abandoned adoption closed
            self.busy = True
            self.release()

    def _disowned(self, estate: EstateId, owned: Owned, cluster: str, owner: str) -> None:
        """A warden takes somebody else for the owner. When all do, our jobs have been adopted while we could
        not hear of it: new ones join a new estate at once, and the old ones wait for the adopter's word."""
        if owner and owner != self.desk.config.name:
            owned.lost_to[cluster] = owner
            if estate == self.base and all(name in owned.lost_to for name in self.desk.config.serving):
                self.desk.mark("broker.founded_anew")
                owned.left = sum(record.estate == estate for record in self.desk.jobs.values())
                self._found()

    def review(self) -> None:
        """With every beat: replace a dead heir, and repeat registrations that were refused."""
        if len(self.names) > 1:  # else there is only the one that new jobs join
            self.closing.review()
        if self.closing.grown:
            self.closing.trim()
        if self.state.doubtful:
            self.seeking.review()
        for estate, owned in self.state.owned.items():
            if owned.closing:
                continue  # nothing is left of it to be inherited
            if not self._reached(owned.heir):
                heir = self._next_heir()
                if heir != owned.heir:
                    self._change_heir(estate, owned, heir)
            elif self._refused(owned) and not owned.copied and not self._unanswered():
                self._register(estate)

    def _next_heir(self) -> str:
        """The first peer on the ring that can be reached; "" if none can."""
        return next((name for name in self.desk.members.ring if self._reached(name)), "")

    def _reached(self, peer: str) -> bool:
        """Whether a peer lives, as far as is known, and takes what it is sent: gossip may come by a detour
        where copies of jobs do not get through."""
        desk = self.desk
        return desk.members.alive(peer) and not desk.post.link(peer).mute(desk.now, self._mute_after)

    def _refused(self, owned: Owned) -> list[str]:
        """Wardens that have not accepted the present term."""
        term, accepted = owned.term, owned.accepted
        return [cluster for cluster in self.desk.config.serving if accepted.get(cluster) != term]

    def _unanswered(self) -> bool:
        return any(self.desk.post.link(cluster).unacked for cluster in self.desk.config.serving)

    def _change_heir(self, estate: EstateId, owned: Owned, heir: str) -> None:
        self.desk.mark("broker.changed_heir")
        owned.term += 1
        owned.heir = heir
        jobs = [record for record in self.desk.jobs.values() if record.estate == estate]
        owned.covered = owned.copied = self._replicate(estate, owned, jobs, {})
        if not owned.copied:  # else the old heir, which has all, stays the heir until the new one has
            self._register(estate)
        owned.settling = [(owned.covered, *entry[1:]) for entry in owned.settling]
        owned.told(owned.covered)
        owned.publishing = [(owned.covered, *entry[1:]) for entry in owned.publishing]
        owned.cover_again(owned.covered)
        owned.admitting = [(owned.covered, job) for _, job in owned.admitting]
        self.busy = True
        self.release()

    def _replicate(
        self, estate: EstateId, owned: Owned, jobs: list[JobRecord], cuts: dict[JobId, Cut]
    ) -> int:
        """Copy jobs to the heir; the number of the last message, 0 if there is no heir."""
        last = 0
        if owned.heir:
            for message in copies(estate, owned.term, jobs, self.desk.now, cuts):
                last = self.desk.post.send(self.desk.out, self.desk.now, owned.heir, message)
        return last

    def accept(self, record: JobRecord) -> None:
        """A new job: copy it to the heir; it is admitted when the heir has it."""
        owned = self.state.owned[record.estate]
        owned.covered = self._replicate(record.estate, owned, [record], {}) or owned.covered
        owned.admitting.append((owned.covered if owned.heir else 0, record.id))
        self.busy = True
        self.release()

    def _safe(self, owned: Owned) -> int:
        """The number of the last message to the heir whose content would survive this broker."""
        if owned.term > 1 and owned.term not in owned.accepted.values():
            return -1  # an older heir could still adopt an outdated copy
        return self.desk.post.link(owned.heir).firm if owned.heir else NEVER

    def release(self) -> None:
        """Admit, make known and settle what the heir has acknowledged."""
        if not self.busy:
            return
        self.busy = False
        if self._budget_of is not self.desk.out:  # another event
            self._budget_of, self._budget = self.desk.out, PUBLISH_MAX
        for estate, owned in self.state.owned.items():
            if owned.copied and owned.copied <= self.desk.post.link(owned.heir).firm:
                owned.copied = 0
                self._register(estate)
            again = owned.next_again()
            if not (owned.publishing or owned.admitting or owned.settling or again < NEVER):
                continue
            safe = self._safe(owned)
            if again <= safe and again < NEVER:
                self._budget -= owned.take_again(safe, self._budget, self.desk.out)
                again = owned.next_again()
            if again > safe or again == NEVER:
                self._publish(owned, safe)
            if (again <= safe and again < NEVER) or (
                owned.publishing and 0 <= owned.publishing[0][0] <= safe
            ):
                self.state.progress_at = self.desk.now
            while owned.admitting and owned.admitting[0][0] <= safe:
                _, job = owned.admitting.pop(0)
                record = self.desk.jobs.get(job)
                if record is not None and not record.admitted and not self.seeking.holds(record):
                    self.admit(record)
            if owned.settling and owned.settling[0][0] <= safe:
                self._settle(owned, safe)

    def _firmed(self) -> None:
        """Some peer has more than before, perhaps an heir what is waited for, if anything is."""
        for owned in self.state.owned.values():
            waits = owned.publishing or owned.admitting or owned.settling or owned.copied
            if waits or owned.next_again() < NEVER:
                self.busy = True
                return

    def _admit_again(self, records: list[JobRecord]) -> None:
        """More is known of doubtful jobs."""
        there = {job for owned in self.state.owned.values() for _, job in owned.admitting}
        for record in records:
            owned = self.state.owned.get(record.estate)
            if owned is not None and record.id not in there:
                owned.admitting.append((owned.covered if owned.heir else 0, record.id))
                self.busy = True

    def _dropped(self, record: JobRecord) -> None:
        """A doubtful job never was: the heir's copy must go."""
        owned = self.state.owned.get(record.estate)
        if owned is not None and owned.heir:
            owned.forget.append(record.id)
            self._soon()

    def _settle(self, owned: Owned, safe: int) -> None:
        """Tell the wardens what they may forget."""
        settled: dict[str, list[tuple[TaskId, int]]] = {}
        count = 0
        for number, cluster, task, attempt in owned.settling:
            if number > safe:
                break
            entries = settled.get(cluster)
            if entries is None:
                entries = settled[cluster] = []
            entries.append((task, attempt))
            count += 1
        del owned.settling[:count]
        for cluster, entries in settled.items():
            self.desk.settling.add(self.desk.now, cluster, entries)

    def _publish(self, owned: Owned, safe: int) -> None:
        """Make known what would survive this broker; before that an heir could still decide otherwise."""
        count = 0
        out = self.desk.out
        for number, subject, attempt, state in owned.publishing:
            if not 0 <= number <= safe or count == self._budget:
                break
            count += 1
            if attempt >= 0:
                out.append(TaskSettled(TaskId(subject), attempt, OUTCOMES[state]))
            else:
                out.append(JobSettled(JobId(subject), OUTCOMES[state]))
                self.careers.announce(JobId(subject))
        self._budget -= count
        del owned.publishing[:count]

    def admit(self, record: JobRecord) -> None:
        """The job is safe: acknowledge it and let it run."""
        record.admitted = True
        if record.client:
            self.desk.out.append(Accepted(record.client, record.request, record.id))
        if record.cancelled:
            return
        self.careers.begin(record)

    def idle(self) -> list[str]:
        """What is not as it should be when no work is left."""
        complaints = []
        for estate, owned in self.state.owned.items():
            ours = (owned.settling, owned.unsent, owned.publishing, owned.admitting)
            waiting = (*ours, owned.again, owned.again_columns)
            if any(waiting):
                complaints.append(
                    f"estate {estate} has unfinished business {[len(part) for part in waiting]}"
                )
        return complaints

    # --- telling the heir ----------------------------------------------------------------------------------

    def _task_done(self, record: JobRecord, index: int, attempt: int) -> None:
        owned = self.state.owned[record.estate]
        task, state = TaskId(record.id << INDEX_BITS | index), record.state[index]
        if owned.heir:
            owned.publishing.append((-1, task, attempt, state))
            owned.done.append((task, state, attempt))
            self._soon()
        else:
            owned.publishing.append((0, task, attempt, state))
            self.busy = True

    def _tasks_done(self, record: JobRecord, first: int, count: int) -> None:
        """Neighbours that never ran have ended alike."""
        if count == 1:
            self._task_done(record, first, 0)
            return
        owned = self.state.owned[record.estate]
        owned.end_run(task_id(record.id, first), record.state[first], count)
        if owned.heir:
            self._soon()
        else:
            self.busy = True

    def _job_over(self, record: JobRecord) -> None:
        owned = self.state.owned[record.estate]
        owned.publishing.append((-1 if owned.heir else 0, record.id, -1, STATES[record.outcome()]))
        if owned.left:
            owned.left -= 1
        if owned.heir:
            owned.forget.append(record.id)
            self._soon()
        else:
            self.busy = True

    def _lags(self, record: JobRecord) -> bool:
        """Whether the heir is so far behind that nothing more should end unasked."""
        owned = self.state.owned[record.estate]
        runs = sum([entry[4] for entry in owned.again])
        return len(owned.publishing) + runs > UNPUBLISHED_MAX

    def job_cancelled(self, record: JobRecord) -> None:
        """The heir must not run a cancelled job."""
        owned = self.state.owned.get(record.estate)
        if owned is not None and record.id not in owned.cancelled:
            owned.cancelled.append(record.id)
            self._soon()

    def finish(self, cluster: str, ends: Sequence[End]) -> None:
        """Attempts are over. The warden may forget each at once, or when the heir knows, if it mattered."""
        jobs, estates, finished = self.desk.jobs, self.state.owned, self.careers.finished
        unknown: Unknown | None = None
        for end in ends:
            task = end.task
            record = jobs.get(JobId(task >> INDEX_BITS))
            owned = estates.get(record.estate) if record is not None else None
            if record is None or not finished(record, task & INDEX_MASK, end) or owned is None:
                unknown = unknown or Unknown(estates.values())
                if (task, end.attempt) in unknown.ends or task >> INDEX_BITS in self.state.given_jobs:
                    continue  # it is settled when the heir knows, or by the adopter
                owned = unknown.owner_of(task)
                if owned is None:
                    self.desk.settling.add(self.desk.now, cluster, [(task, end.attempt)])
                    continue
                self.desk.mark("broker.old_end_kept")
            if owned.settle_later(cluster, task, end.attempt):
                self._soon()
            else:
                self.busy = True

    def _soon(self) -> None:
        due = self.desk.now + self.desk.timings.delta_linger
        if due < self.state.progress_at:  # noqa: PLR1730  hot: min() costs more
            self.state.progress_at = due

    def tick(self) -> None:
        """Tell the heirs what has ended."""
        self.state.progress_at = NEVER
        for estate, owned in self.state.owned.items():
            if owned.heir and (owned.done or owned.done_runs or owned.cancelled or owned.forget):
                ends, runs = owned.done, owned.done_runs
                for message in progress(estate, ends, runs, owned.cancelled, owned.forget):
                    owned.covered = self.desk.post.send(self.desk.out, self.desk.now, owned.heir, message)
            owned.told(owned.covered if owned.heir else 0)
        self.busy = True
        self.release()

    # --- taking over, and being taken over ------------------------------------------------------------------

    def adopt(self, estate: EstateId, ward: Ward) -> None:
        """Every warden has agreed: the jobs are ours."""
        desk = self.desk
        heir = next(
            (name for name in desk.members.ring if name != ward.owner and desk.members.alive(name)), ""
        )
        term = ((ward.term >> TERMS_BITS) + 1) << TERMS_BITS
        owned = self.state.owned[estate] = new_owned(term, heir)
        self._rename()
        owned.left, owned.former = len(ward.jobs), ward.owner
        cuts = {job: ward.known[job].cut() for job in ward.jobs}
        records = []
        for replica in ward.jobs.values():
            record = revive(replica, ward, estate, cuts[replica.job])
            records.append(record)
            self.careers.enter(record)
            self.state.give_back(record.id)
        self._register(estate)
        owned.covered = self._replicate(estate, owned, records, cuts)
        desk.post.send(desk.out, desk.now, ward.owner, Taken(estate, tuple(ward.jobs), term))
        latest = latest_attempts(ward)
        for record in records:
            task = task_id(record.id, 0)
            runs, columns = cuts[record.id]
            owned.again += [(owned.covered, task + run[0], run[2], run[1], run[3]) for run in runs]
            owned.again_columns += [(owned.covered, task + one[0], *one[1:]) for one in columns]
        self.busy = True
        for record in records:
            self._resume(record, latest.get(record.id, {}), record.id in ward.cancelled)
        for cluster, end in ward.ends:
            known = latest.get(job_of(end.task), {}).get(end.task)
            if job_of(end.task) not in ward.jobs or known is None or known[2] is not end:
                # superseded, or of a job long over
                desk.settling.add(desk.now, cluster, [(end.task, end.attempt)])

    def _resume(self, record: JobRecord, latest: Latest, cancelled: bool) -> None:
        """Take an adopted job up where it was."""
        ends = place_again(record, latest, lambda cluster: self.desk.view_of[cluster].index)
        for group, part in enumerate(record.spec.groups):
            if record.unfinished[group] < part.count:
                record.told[group] = ""
        record.cancelled = cancelled or record.cancelled  # then nothing of it is queued
        gone, tasks = ("", []) if record.cancelled else unaccounted(self.desk, record)
        for index in tasks:
            self.careers.fail_lost(record, index, f"nobody can say whether it began in {gone}")
        self.careers.resume(record)
        for cluster, end in ends:
            self.finish(cluster, (end,))
        base = (self.state.owned[record.estate].term >> TERMS_BITS) << ATTEMPTS_BITS
        for task in latest:
            index = task & INDEX_MASK
            if record.state[index] <= WAITING:  # the former owner may have used higher numbers than are known
                record.attempt[index] = max(record.attempt[index], base)
        if record.cancelled and record.id in self.desk.jobs:
            record.cancelled = False
            self.careers.cancel(record, "cancelled before it was adopted")

    def taken(self, adopter: str, message: Taken) -> None:
        """Our estate belongs to a peer now: let go of what it has, keep what it never got."""
        owned = self.state.owned.pop(message.estate, None)
        self._rename()
        self.closing.taken(adopter, message, owned)
        if owned is None:
            return
        self.desk.mark("broker.estate_taken")
        if message.estate == self.base:
            self._found()
        ours = [record for record in self.desk.jobs.values() if record.estate == message.estate]
        theirs = dict.fromkeys(message.jobs, True)
        self.state.give(message.jobs, adopter, self.desk.config.ended_max)
        for record in ours:
            self.careers.let_go(record)
            if record.id in theirs:
                if not record.admitted and record.client:
                    self.desk.out.append(Accepted(record.client, record.request, record.id))
            else:
                self._rehome(record)
        owned.leave_to(self.state.owned[self.base], theirs)
        self.busy = True
        self.careers.ask_adopter(theirs)

    def _rehome(self, record: JobRecord) -> None:
        """A job that the adopter never got: nothing of it can run anywhere, so it begins anew with us."""
        self.desk.mark("broker.rehomed_job")
        fresh = new_record(record.id, record.spec, self.base, record.accepted_at)
        fresh.client, fresh.request = record.client, record.request
        fresh.attempt = [attempt + 1 for attempt in record.attempt]
        self.careers.enter(fresh)
        self.seeking.doubt((fresh,))
        self.accept(fresh)
