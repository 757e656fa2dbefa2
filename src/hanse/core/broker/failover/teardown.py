"""How an adopted estate comes to its end, so that adoptions leave nothing behind.

Its owner closes an adopted estate when all its jobs have ended, all of that is settled, and everybody who
ever owned it has let go of it; likewise one of its own that new jobs no longer join, because it looked as if
it had been adopted and then had not. Each warden forgets it and fences its generation for ever
(``core.warden.ownership``), so that nothing late can bring it back: a registration, a claim, or the bid of an
heir with an old copy. Each owner, when an estate leaves its hands one way or the other, has the peers drop
the copies that it has sent.

Former owners pass the word along: whoever is told ``Taken`` answers ``Handed``, but only when the one that it
had adopted the estate from has told it so in turn. A former owner that is dead holds up the end of the
estates that were adopted from it, and of no others; it founds none while it is dead, so there are few.
"""

from collections.abc import Callable
from typing import Any, Final

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.owned_shards import EstatesState, Owing, Owned
from hanse.core.broker.failover.standby import Wards
from hanse.core.broker.failover.terms import adoption_of
from hanse.model.messages import EstateId, Taken
from hanse.model.messages.shard_teardown import Close, Closed, Handed, Over

GIVEN_MAX: Final = 1_024
"""Estates that peers have adopted from us which we remember; the oldest is forgotten first. It only serves to
point those who ask to the right broker."""
ROUNDS_SPARE: Final = 64
"""Lease rounds that are kept of one cluster beyond those of our own estates: late beats may name estates that
are no longer ours."""


class Closing:
    """The end of estates at one broker: those it adopted, and those that were adopted from it."""

    def __init__(self, desk: Desk, state: Callable[[], EstatesState], base: Callable[[], EstateId]) -> None:
        self.desk = desk
        self._state = state
        self._base = base
        self.closed: Callable[[], None] = lambda: None
        """Called when an estate has come to its end."""
        self.grown = True
        """Whether there may be more lease rounds of some cluster than are kept: some have come, or an estate
        has gone. Whoever adds rounds says so."""

    def handlers(self, wards: Wards) -> dict[type, Callable[[str, Any], None]]:
        """Who takes which message."""
        return {Closed: self.answered, Handed: self.handed, Over: wards.over}

    # --- the owner -----------------------------------------------------------------------------------------

    def review(self) -> None:
        """With every beat: ask the wardens to close what has come to its end."""
        base = self._base()
        for estate, one in list(self._state().owned.items()):
            former = one.former not in self.desk.config.retired and one.former
            if estate != base and not former and one.quiet():
                if one.closing and self._is_closed(one):
                    self._finish(estate)  # the last that was waited for has retired
                else:
                    self._ask(estate, one)

    def boot(self) -> None:
        """After a start, perhaps with newer settings: nobody waits for the word of who has retired."""
        state, retired = self._state(), self.desk.config.retired
        for one in state.owned.values():
            if one.former in retired:
                one.former = ""
        for owing in list(state.owing):
            if owing.former in retired or owing.adopter in retired:
                state.owing.remove(owing)
                self._hand(owing.estate, owing.adopter, owing.adopter_term)

    def unguarded(self) -> int:
        """How much would be lost with us: jobs that nobody else has whole copies of, and what others have not
        been told, such as that we have adopted their jobs, or settled an end."""
        desk, owned = self.desk, self._state().owned
        exposed = [name for name, one in owned.items() if not one.heir or one.copied]
        jobs = sum(record.estate in exposed for record in desk.jobs.values()) if exposed else 0
        untold = sum(one.untold() for one in owned.values()) + len(desk.settling.state.entries)
        return jobs + untold + sum(len(link.unacked) for link in desk.post.links.values())

    def trim(self) -> None:
        """Where there are more lease rounds than are kept, forget those of estates that are not ours."""
        self.grown = False
        owned = self._state().owned
        for rounds in self._excess():
            for estate in [name for name in rounds if name not in owned]:
                del rounds[estate]

    def _excess(self) -> list[dict[EstateId, int]]:
        """Lease rounds, of one cluster each, that are more than are kept."""
        most = ROUNDS_SPARE + len(self._state().owned)
        sights = [view.sight for view in self.desk.views]
        return [
            rounds for sight in sights for rounds in (sight.rounds, sight.least_round) if len(rounds) > most
        ]

    def check(self) -> None:
        """Whether all excess is known."""
        assert self.grown or not self._excess(), "there are more lease rounds than are kept"

    def _ask(self, estate: EstateId, one: Owned) -> None:
        desk = self.desk
        for cluster in desk.config.serving:
            if cluster not in one.closing and not desk.post.link(cluster).crowded:
                one.closing[cluster] = False
                desk.post.send(desk.out, desk.now, cluster, Close(estate, one.term))

    def answered(self, cluster: str, message: Closed) -> None:
        """A warden has closed an estate, or cannot yet: then it is asked again with the next beat."""
        one = self._state().owned.get(message.estate)
        if one is None or cluster not in one.closing or adoption_of(one.term) != adoption_of(message.term):
            return
        if not message.done:
            self.desk.mark("broker.close_put_off")
            del one.closing[cluster]
            return
        one.closing[cluster] = True
        if self._is_closed(one):
            self._finish(message.estate)

    def _is_closed(self, one: Owned) -> bool:
        """Whether every warden has closed an estate."""
        return all(one.closing.get(name, False) for name in self.desk.config.serving)

    def _finish(self, estate: EstateId) -> None:
        desk = self.desk
        desk.mark("broker.closed_estate")
        del self._state().owned[estate]
        self.closed()
        self._depart(estate)

    def _depart(self, estate: EstateId) -> None:
        """An estate is no longer ours: its lease rounds, and the copies of it that we have sent, are of no
        use."""
        desk = self.desk
        self.grown = True
        for view in desk.views:
            view.sight.rounds.pop(estate, None)
            view.sight.least_round.pop(estate, None)
        for peer in desk.members.peers:
            if not desk.post.link(peer).crowded:  # else it loses its copies when it next bids with them
                desk.post.send(desk.out, desk.now, peer, Over(estate))

    # --- former owners -------------------------------------------------------------------------------------

    def taken(self, adopter: str, message: Taken, one: Owned | None) -> None:
        """An estate was adopted from us: say that we have let go, now or when all before us have."""
        state = self._state()
        state.given.pop(message.estate, None)
        state.given[message.estate] = adopter
        if len(state.given) > GIVEN_MAX:
            del state.given[next(iter(state.given))]
        self._depart(message.estate)
        if one is not None and one.former and one.former not in self.desk.config.retired:
            self.desk.mark("broker.owes_word")
            state.owing.append(Owing(message.estate, one.term, one.former, adopter, message.term))
        else:
            self._hand(message.estate, adopter, message.term)

    def handed(self, former: str, message: Handed) -> None:
        """From whom we have adopted an estate has let go, and all before it."""
        state = self._state()
        one = state.owned.get(message.estate)
        number = adoption_of(message.term)
        if one is not None and one.former == former and adoption_of(one.term) == number:
            one.former = ""
        late = [
            owing
            for owing in state.owing
            if (owing.estate, owing.former, adoption_of(owing.term)) == (message.estate, former, number)
        ]
        for owing in late:
            state.owing.remove(owing)
            self._hand(owing.estate, owing.adopter, owing.adopter_term)

    def _hand(self, estate: EstateId, adopter: str, term: int) -> None:
        self.desk.post.send(self.desk.out, self.desk.now, adopter, Handed(estate, term))
