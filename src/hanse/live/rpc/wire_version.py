"""The version of the wire, agreed on in the handshake: members that do not understand each other say nothing.

It is TLS's own way of choosing a protocol (ALPN). Whoever dials offers the versions that it speaks and,
behind them, ``MARKER``; whoever is dialled chooses the best that it speaks itself or, if there is none, the
marker. So each side knows what was chosen:

* a version of its own: that is spoken;
* nothing: the other is a member from before there were versions, and speaks ``UNNAMED``;
* the marker, or a version that it does not speak: they have none in common, and the connection ends.

Doors speak HTTP and have no part in this.
"""

import ssl
from typing import Final

from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

MARKER: Final = "hanse-wire"
"""Says that its bearer knows of versions."""
UNNAMED: Final = f"{MARKER}/1"
"""What members speak that know of no versions."""
SPOKEN: Final = (f"{MARKER}/2",)
"""What this release speaks, the best first. The number rises whenever a frame, an envelope or a message
changes so that a member of the release before would refuse it or take it for something else."""
RECOGNISED_MAX: Final = 99
"""Up to this number a version is recognised that is offered without the marker: Python does not tell a
server what it was offered, only what it chose."""


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """For taking the connections of members."""
    context = credentials.server_context()
    others = (f"{MARKER}/{number}" for number in range(1, RECOGNISED_MAX + 1))
    context.set_alpn_protocols(list(dict.fromkeys((*SPOKEN, MARKER, *others))))
    return context


def client_context(credentials: Credentials, peer: Identity) -> ssl.SSLContext:
    """For dialling a member."""
    context = credentials.client_context(peer)
    context.set_alpn_protocols([*SPOKEN, MARKER])
    return context


def version_problem(connection: ssl.SSLObject) -> str:
    """Why a peer whose handshake is done cannot be understood, and what to do; empty: it can."""
    chosen = connection.selected_alpn_protocol() or UNNAMED
    if chosen in SPOKEN:
        return ""
    other = "another version" if chosen == MARKER else chosen
    return (
        f"it speaks {other} of the wire, and this member speaks {' and '.join(SPOKEN)} only: nothing is said "
        "between them. Install the same release on both, or two that run beside each other by "
        "docs/upgrades.md"
    )
