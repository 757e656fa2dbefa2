"""Functions for routes that other packages add to a server: how to answer, how to authorize."""

from hanse.live.http.auth_middleware import guard
from hanse.live.http.operation_record import VIEW
from hanse.live.http.responses import RefusedError, json_answer

__all__ = ["VIEW", "RefusedError", "guard", "json_answer"]
