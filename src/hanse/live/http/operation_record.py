"""Record of one operation of the HTTP interface: roles, parameters, answers and refusals."""

from enum import StrEnum
from typing import Final

import msgspec

from hanse.security.identity import Role

VIEW: Final = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.APPROVER, Role.ADMIN)
SUBMIT: Final = (Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)
OPERATE: Final = (Role.OPERATOR, Role.ADMIN)
ADMINISTER: Final = (Role.ADMIN,)
ANY_ROLE: Final[tuple[Role, ...]] = tuple(Role)
"""All clients that show an identity."""
TEXT_CHARACTERS_MAX: Final = 256
"""Characters of a parameter."""
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"


class Location(StrEnum):
    """Location of a parameter, as OpenAPI's ``in``."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter: an integer if it has bounds, a comma-separated list if ``is_list``, else a text."""

    name: str
    doc: str
    location: Location = Location.QUERY
    bounds: tuple[int, int] | None = None
    """Minimum and maximum."""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    pattern: str = ""
    length_max: int = TEXT_CHARACTERS_MAX
    default: str = ""
    """The default in the client's notation; empty: none."""
    example: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a server."""

    name: str
    """``operationId``: its name in a generated client."""
    verb: str
    path: str
    doc: str
    roles: tuple[Role, ...] = ()
    public: bool = False
    """True if no identity is needed."""
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    answer: type | None = None
    """None: not JSON, see ``media``."""
    media: str = JSON
    refusals: tuple[tuple[int, str], ...] = ()
    """Statuses beyond those that every operation may answer, and their meanings."""
    cost: int = 1
    """Tokens that a request takes from the client's bucket."""
    long_lived: bool = False
    """True if a request may stay open for long without work: it is limited apart from short requests."""


_UNPROCESSABLE: Final = 422
_MALFORMED: Final = (400, "The request is not HTTP, or its body is not JSON.")
_INVALID: Final = (_UNPROCESSABLE, "A parameter or the body is invalid.")


def refusals(operation: Operation) -> dict[int, str]:
    """Return every status but 200 that an operation may answer, and its meaning."""
    found = {
        400: _MALFORMED[1],
        429: "This identity sends too many requests; Retry-After says how many seconds to wait.",
        500: "A bug of ours; it is logged.",
        503: "Not now; Retry-After says how many seconds to wait.",
    }
    if not operation.public:
        found[401] = "No valid certificate of the league and no valid access token was shown."
        found[403] = "The role of the client may not do this."
    if operation.parameters or operation.body is not None:
        found[_UNPROCESSABLE] = _INVALID[1]
    if operation.body is not None:
        found[413] = "The body is too large."
        found[415] = "The declared type of the body is not JSON."
    return {**found, **dict(operation.refusals)}
