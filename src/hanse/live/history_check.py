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
from hanse.live.high_water_mark import JOURNAL_OLDER_FILE, LostHistoryError
from hanse.live.telemetry.json_logs import log_fields
from hanse.model.messages import Envelope
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.security.atomic_files import PRIVATE, replace

START_WAIT_SECONDS: Final = 1.0
"""Seconds that a member waits at its start for the answers of its peers."""
ASK_AGAIN_SECONDS: Final = 0.2
LATE_ASK_SECONDS: Final = 1.0
"""Seconds between questions to a peer that has not answered, while the member runs."""
NO_REPLY_SECONDS: Final = 10.0
"""Seconds that a peer may send messages without answering. After that its version cannot answer, and only its
acknowledgements are compared."""
NUMBER_BITS: Final = 48
HISTORY_MESSAGES: Final = frozenset((HistoryQuery, HistoryReply))
log = logging.getLogger(__name__)


class HistoryCheck:
    """Questions of one member about its history, and its answers to those of others."""

    def __init__(
        self, directory: Path, links: LinkSet, peers: Iterable[str], send: Callable[[Envelope], None]
    ) -> None:
        self.unanswered = set(peers)
        """Peers that have not answered yet."""
        self._directory = directory
        self._links = links
        self._send = send
        self._history = LinkHistory(links)
        self._number = secrets.randbits(NUMBER_BITS)
        self._talking_since: dict[str, float] = {}
        """First message of each peer that has not answered, by the loop's clock in seconds."""
        self._finished = asyncio.Event()
        """Set when every peer has answered, or one contradicts."""
        self._error: LostHistoryError | None = None

    def on_message_before_start(self, envelope: Envelope) -> None:
        """Handle a message before the machine acts: messages for the machine are dropped, and repeated."""
        self.intercept(envelope)

    def intercept(self, envelope: Envelope) -> bool:
        """Return True if a message is not for the machine: a question, an answer, or from a peer that has not
        answered yet and will repeat it."""
        body, source = envelope.body, envelope.source
        if type(body) is HistoryQuery:
            self._send_to(source, answer_history_query(self._links, source, body.number))
            if source in self.unanswered:  # it is reachable now
                self._send_to(source, HistoryQuery(self._number))
        elif type(body) is HistoryReply:
            if body.number == self._number and source in self.unanswered:
                self._compare(source, body.received, body.acked, envelope.session)
        elif source in self.unanswered:
            self._on_other_message(envelope)
        else:
            return False
        return True

    async def ask(self) -> None:
        """Ask every peer and wait for the answers; raise if one contradicts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_WAIT_SECONDS
        while self.unanswered and not self._finished.is_set() and (left := deadline - loop.time()) > 0:
            await self._ask_unanswered(min(left, ASK_AGAIN_SECONDS))
        if self._error is not None:
            raise self._error
        if self.unanswered:
            log.warning(
                "some peers gave no answer about the past", extra=log_fields(peers=sorted(self.unanswered))
            )

    async def keep_asking(self) -> None:
        """Ask absent peers until each has answered; raise if one contradicts."""
        while self.unanswered and self._error is None:
            await self._ask_unanswered(LATE_ASK_SECONDS)
        if self._error is not None:
            raise self._error

    async def _ask_unanswered(self, seconds: float) -> None:
        """Ask, and wait at most so long for the last answer."""
        for peer in sorted(self.unanswered):
            self._send_to(peer, HistoryQuery(self._number))
        try:
            await asyncio.wait_for(self._finished.wait(), seconds)
        except TimeoutError:
            return

    def _send_to(self, peer: str, body: HistoryQuery | HistoryReply) -> None:
        """Send a message outside of the link's numbers, unknown to the machine."""
        self._send(Envelope(self._links.name, peer, 0, 0, 0, body))

    def _on_other_message(self, envelope: Envelope) -> None:
        """Handle another message of a peer that has not answered; its answer may follow."""
        peer, now = envelope.source, asyncio.get_running_loop().time()
        if now - self._talking_since.setdefault(peer, now) > NO_REPLY_SECONDS:
            log.warning("a peer cannot answer about the history", extra=log_fields(peer=peer))
            self._compare(peer, envelope.ack, 0, 0)  # it cannot report the session of a runner

    def _compare(self, peer: str, taken: int, acked: int, session: int) -> None:
        contradiction = self._history.find_contradiction(peer, taken, acked, session)
        if contradiction is not None:
            self._on_contradiction(contradiction)
            return
        self.unanswered.discard(peer)
        if not self.unanswered:
            self._finished.set()

    def _on_contradiction(self, contradiction: str) -> None:
        """Leave the marker, and end the waits. The peer stays unanswered: nothing is sent to it."""
        name = self._directory.name
        sentence = (
            f"the journal of {name} is older than {name} itself: {contradiction}. Its files were "
            f"restored from an "
            f"older copy, or the end of its journal was lost. Restore the newest copy. If there is none, "
            f"let the peers take over its jobs, and add it under a new name at the end of the league file."
        )
        if self._error is None:
            self._error = LostHistoryError(sentence)
            replace(self._directory / JOURNAL_OLDER_FILE, sentence.encode(), PRIVATE)
        self._finished.set()
