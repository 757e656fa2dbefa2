"""Admitted request of an HTTP operation, as its handler gets it: who asks, and with which parameters."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from hanse.live.http.rate_limiter import RateLimiter
from hanse.live.http.request_parameters import ParameterValues
from hanse.security.identity import Identity


class AdmittedRequest:
    """Request that may be served: the identity of the client, and the parameters."""

    def __init__(
        self,
        request: Request,
        peer: Identity | None,
        key: str,
        values: ParameterValues,
        limiter: RateLimiter,
    ) -> None:
        self.request = request
        self._peer = peer
        self.key = key
        """Key of the token bucket that pays for the request."""
        self._values = values
        self._limiter = limiter

    @property
    def peer(self) -> Identity:
        """Identity of the client; handlers of public operations must not ask for it."""
        assert self._peer is not None, "a public operation has no identity"
        return self._peer

    @property
    def has_token(self) -> bool:
        """True if the client showed an access token."""
        return "authorization" in self.request.headers

    @property
    def certificate_issued_at(self) -> int:
        """Time when the connection's certificate was issued, in microseconds since 1970."""
        issued = self.request.scope["state"]["issued"]
        assert isinstance(issued, int)
        return issued

    @property
    def client(self) -> str:
        """Identity of the client as the machines record it."""
        return f"{self.peer.role}/{self.peer.name}"

    def text(self, name: str) -> str:
        """Return a parameter; empty if the client did not give it."""
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def number(self, name: str) -> int:
        """Return a number that was given or has a default."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def optional_number(self, name: str) -> int | None:
        """Return a number; None if the client did not give it."""
        return self._values[name] if self._values[name] != "" else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a parameter that is a list."""
        value = self._values[name]
        assert isinstance(value, tuple), name
        return value

    def charge(self, cost: float) -> None:
        """Charge the client's token bucket for more than the fixed cost of the operation."""
        self._limiter.charge(self.key, cost)


Handler = Callable[[AdmittedRequest], Awaitable[Response]]
