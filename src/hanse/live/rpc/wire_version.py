"""Version of the wire, negotiated in the handshake: members without a common version exchange no messages.

It uses TLS's own choice of a protocol (ALPN). The client offers the versions that it speaks and, behind them,
``ALPN_MARKER``; the server chooses the best that it speaks itself or, if there is none, the marker. So each
side knows the choice:

* a version of its own: that is spoken;
* nothing: the other is a member from before there were versions, and speaks ``UNMARKED_VERSION``;
* the marker, or a version that it does not speak: none is common, and the connection ends.

HTTPS servers speak HTTP and do not use this.
"""

import ssl
from typing import Final

from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

ALPN_MARKER: Final = "hanse-wire"
"""Says that its sender knows versions."""
UNMARKED_VERSION: Final = f"{ALPN_MARKER}/1"
"""Version of members that know no versions."""
SUPPORTED_VERSIONS: Final = (f"{ALPN_MARKER}/2",)
"""Versions that this release speaks, the best first. The number rises whenever a frame, an envelope or a
message changes so that a member of the release before would refuse or misread it."""
RECOGNISED_VERSION_MAX: Final = 99
"""Highest number of a version that is recognised if it is offered without the marker: Python does not tell a
server the offer, only the choice."""


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS context for connections from members."""
    context = credentials.server_context()
    others = (f"{ALPN_MARKER}/{number}" for number in range(1, RECOGNISED_VERSION_MAX + 1))
    context.set_alpn_protocols(list(dict.fromkeys((*SUPPORTED_VERSIONS, ALPN_MARKER, *others))))
    return context


def client_context(credentials: Credentials, peer: Identity) -> ssl.SSLContext:
    """Return the TLS context for dialling a member."""
    context = credentials.client_context(peer)
    context.set_alpn_protocols([*SUPPORTED_VERSIONS, ALPN_MARKER])
    return context


def version_problem(connection: ssl.SSLObject) -> str:
    """Return why a peer has no common version after the handshake, and what to do; empty: it has one."""
    chosen = connection.selected_alpn_protocol() or UNMARKED_VERSION
    if chosen in SUPPORTED_VERSIONS:
        return ""
    other = "another version" if chosen == ALPN_MARKER else chosen
    return (
        f"it speaks {other} of the wire, and this member speaks {' and '.join(SUPPORTED_VERSIONS)} only. "
        "Install the same release on both, or two that are compatible according to "
        "docs/operator/upgrades.md"
    )
