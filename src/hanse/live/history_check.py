"""History check at a start: asks the peers what they remember of the member, before any other message.

A member whose whole directory was replaced by an older copy finds no fault in it; its peers do (see
``core.history_check``). So each peer is asked first. Until it has answered, nothing else is sent to it and
none of its messages is taken: for the machine it is not reachable. A member waits ``START_WAIT_SECONDS`` for
all answers before its machine acts and its HTTPS server starts; an absent peer does not delay it longer, and
is asked when it is back. The first answer that contradicts ends the member, and leaves a marker.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from hanse.core.history_check import LinkHistory, answer_history_query
from hanse.core.messaging.link import LinkSet
from hanse.live.high_water_mark import OLDER, ForgetfulError
from hanse.live.telemetry.json_logs import fields
from hanse.model.messages import Envelope
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.security.atomic_files import PRIVATE, replace

PATIENCE_SECONDS: Final = 1.0
"""Seconds that a member waits at its start for the answers of its peers."""
ASK_AGAIN_SECONDS: Final = 0.2
LATE_SECONDS: Final = 1.0
"""Seconds between questions to a peer that has not answered, while the member runs."""
DUMB_SECONDS: Final = 10.0
"""Seconds that a peer may send messages without answering. After that its version cannot answer, and only its
acknowledgements are compared."""
NUMBER_BITS: Final = 48
ABOUT_THE_PAST: Final = frozenset((HistoryQuery, HistoryReply))
log = logging.getLogger(__name__)


class Recollection:
    """Questions of one member about its history, and its answers to those of others."""

    def __init__(
        self, directory: Path, post: LinkSet, peers: Iterable[str], send: Callable[[Envelope], None]
    ) -> None:
        self.unheard = set(peers)
        """Peers that have not answered yet."""
        self._directory = directory
        self._post = post
        self._send = send
        self._remembered = LinkHistory(post)
        self._number = secrets.randbits(NUMBER_BITS)
        self._talking: dict[str, float] = {}
        """First message of each peer that has not answered, by the loop's clock in seconds."""
        self._settled = asyncio.Event()
        """Set when every peer has answered, or one contradicts."""
        self._error: ForgetfulError | None = None

    def hear(self, envelope: Envelope) -> None:
        """Handle a message before the machine acts: messages for the machine are dropped, and repeated."""
        self.keeps(envelope)

    def keeps(self, envelope: Envelope) -> bool:
        """Return True if a message is not for the machine: a question, an answer, or from a peer that has not
        answered yet and will repeat it."""
        body, source = envelope.body, envelope.source
        if type(body) is HistoryQuery:
            self._say(source, answer_history_query(self._post, source, body.number))
            if source in self.unheard:  # it is reachable now
                self._say(source, HistoryQuery(self._number))
        elif type(body) is HistoryReply:
            if body.number == self._number and source in self.unheard:
                self._compare(source, body.received, body.acked, envelope.session)
        elif source in self.unheard:
            self._overhear(envelope)
        else:
            return False
        return True

    async def ask(self) -> None:
        """Ask every peer and wait for the answers; raise if one contradicts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while self.unheard and not self._settled.is_set() and (left := deadline - loop.time()) > 0:
            await self._ask_the_unheard(min(left, ASK_AGAIN_SECONDS))
        if self._error is not None:
            raise self._error
        if self.unheard:
            log.warning("some peers gave no answer about the past", extra=fields(peers=sorted(self.unheard)))

    async def keep(self) -> None:
        """Ask absent peers until each has answered; raise if one contradicts."""
        while self.unheard and self._error is None:
            await self._ask_the_unheard(LATE_SECONDS)
        if self._error is not None:
            raise self._error

    async def _ask_the_unheard(self, seconds: float) -> None:
        """Ask, and wait at most so long for the last answer."""
        for peer in sorted(self.unheard):
            self._say(peer, HistoryQuery(self._number))
        try:
            await asyncio.wait_for(self._settled.wait(), seconds)
        except TimeoutError:
            return

    def _say(self, peer: str, body: HistoryQuery | HistoryReply) -> None:
        """Send a message outside of the link's numbers, unknown to the machine."""
        self._send(Envelope(self._post.name, peer, 0, 0, 0, body))

    def _overhear(self, envelope: Envelope) -> None:
        """Handle another message of a peer that has not answered; its answer may follow."""
        peer, now = envelope.source, asyncio.get_running_loop().time()
        if now - self._talking.setdefault(peer, now) > DUMB_SECONDS:
            log.warning("a peer cannot answer about the history", extra=fields(peer=peer))
            self._compare(peer, envelope.ack, 0, 0)  # it cannot report the session of a runner

    def _compare(self, peer: str, taken: int, acked: int, session: int) -> None:
        what = self._remembered.find_contradiction(peer, taken, acked, session)
        if what is not None:
            self._contradicted(what)
            return
        self.unheard.discard(peer)
        if not self.unheard:
            self._settled.set()

    def _contradicted(self, what: str) -> None:
        """Leave the marker, and end the waits. The peer stays unanswered: nothing is sent to it."""
        name = self._directory.name
        sentence = (
            f"the journal of {name} is older than {name} itself: {what}. Its files were restored from an "
            f"older copy, or the end of its journal was lost. Restore the newest copy. If there is none, "
            f"let the peers take over its jobs, and add it under a new name at the end of the league file."
        )
        if self._error is None:
            self._error = ForgetfulError(sentence)
            replace(self._directory / OLDER, sentence.encode(), PRIVATE)
        self._settled.set()
