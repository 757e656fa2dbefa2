"""The responses of servers: JSON, and errors in one form.

An error is ``{"error": {"code", "message", "hint", "problems"}}``: a word for programs, a sentence for
people, the next step, and the problem of each field if fields are wrong.
"""

import asyncio
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hanse.api.records import ErrorAnswer, ErrorText, Flaw, SubmitResult

BODY_BYTES_MAX: Final = 64 << 20
"""Bytes of the largest request body: a batch of jobs."""
BODY_SECONDS_MAX: Final = 60.0
"""Seconds that a body may take to arrive."""
RETRY_SECONDS: Final = 1
"""Seconds after which a client should retry at a member that is behind with its work."""

BROKER_HEADER: Final = "X-Hanse-Broker"
RUNNER_HEADER: Final = "X-Hanse-Runner"

_encode: Final = msgspec.json.Encoder().encode
T = TypeVar("T")


class RefusedError(Exception):
    """The refusal of a request."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.problems: tuple[Flaw, ...] = ()
        self.results: tuple[SubmitResult, ...] = ()
        self.headers: dict[str, str] = {}

    def to_response(self) -> Response:
        """Return the refusal as a response."""
        error = ErrorText(self.code, self.message, self.hint, self.problems)
        response = json_answer(ErrorAnswer(error, self.results), self.status)
        response.headers.update(self.headers)
        return response


def retry_later(status: int, code: str, message: str, seconds: int = RETRY_SECONDS) -> RefusedError:
    """Return a refusal of a request that may be repeated after so many seconds."""
    refused = RefusedError(status, code, message, f"try again in {seconds} s")
    refused.headers["Retry-After"] = str(seconds)
    return refused


def busy_error() -> RefusedError:
    """Return the refusal of a member that is behind with its work."""
    return retry_later(503, "busy", "this broker is behind with its work")


def internal_error() -> RefusedError:
    """Return the error for an unexpected exception."""
    return RefusedError(500, "bug", "a bug in Hanse; the member's log has the details")


def bad_parameter_error(name: str, rule: str) -> RefusedError:
    """Return the refusal of an invalid parameter."""
    refused = RefusedError(422, "bad_parameter", f"{name}: {rule}")
    refused.problems = (Flaw(name, rule),)
    return refused


class RedirectError(RefusedError):
    """A redirect to another member: 307, with its name in a header, because addresses prove nothing."""

    def __init__(self, header: str, member: str, location: str, why: str) -> None:
        super().__init__(307, "elsewhere", f"{member} {why}", f"ask {location}")
        self.headers = {"Location": location, header: member}


def json_answer(value: object, status: int = 200) -> Response:
    """Return a record as a JSON response."""
    return Response(_encode(value), status, media_type="application/json")


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the decoded JSON body, bounded in size and time."""
    _must_be_json(request)
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            body = await _read(request)
    except (TimeoutError, ClientDisconnect):
        raise RefusedError(400, "no_body", f"the body did not come within {BODY_SECONDS_MAX:.0f} s") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RefusedError(422, "bad_request", f"the body is invalid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, "not_json", f"the body is not JSON: {error}") from None


def _must_be_json(request: Request) -> None:
    """Refuse a body that a web page can make a browser send with its user's certificate (no preflight)."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared not in ("", "application/json") and not declared.endswith("+json"):
        hint = "send 'Content-Type: application/json'; with curl: --json"
        raise RefusedError(415, "not_json", f"a body must be JSON, not {declared[:64]!r}", hint)


async def _read(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise _too_large()
    return bytes(body)


def _too_large() -> RefusedError:
    return RefusedError(
        413, "too_large", f"a request may have at most {BODY_BYTES_MAX} bytes", "send fewer jobs at once"
    )
