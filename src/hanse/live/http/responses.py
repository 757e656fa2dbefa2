"""How doors answer: JSON, and errors in one shape.

An error is ``{"error": {"code", "message", "hint", "problems"}}``: a word for programs, a sentence for
people, what to do next, and what is wrong field by field where that is the reason.
"""

import asyncio
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hanse.api.records import ErrorAnswer, ErrorText, Flaw, SubmitResult

BODY_BYTES_MAX: Final = 64 << 20
"""The largest request body: a batch of jobs."""
BODY_SECONDS_MAX: Final = 60.0
"""How long a body may take to come."""
BUSY_SECONDS: Final = 1
"""When to come back to a member that is behind with its work."""

BROKER_HEADER: Final = "X-Hanse-Broker"
RUNNER_HEADER: Final = "X-Hanse-Runner"

_encode: Final = msgspec.json.Encoder().encode
T = TypeVar("T")


class RefusedError(Exception):
    """A request that is not met."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.problems: tuple[Flaw, ...] = ()
        self.results: tuple[SubmitResult, ...] = ()
        self.headers: dict[str, str] = {}

    def answer(self) -> Response:
        """As the client gets it."""
        error = ErrorText(self.code, self.message, self.hint, self.problems)
        response = json_answer(ErrorAnswer(error, self.results), self.status)
        response.headers.update(self.headers)
        return response


def later(status: int, code: str, message: str, seconds: int = BUSY_SECONDS) -> RefusedError:
    """A refusal of what may be asked again after so many seconds."""
    refused = RefusedError(status, code, message, f"try again in {seconds} s")
    refused.headers["Retry-After"] = str(seconds)
    return refused


def busy() -> RefusedError:
    """This member is behind with its work."""
    return later(503, "busy", "this broker is behind with its work")


def bug() -> RefusedError:
    """Something that nobody has thought of."""
    return RefusedError(500, "bug", "this is a bug of Hanse; the member's log says more")


def bad_parameter(name: str, rule: str) -> RefusedError:
    """A parameter that is not as it should be."""
    refused = RefusedError(422, "bad_parameter", f"{name}: {rule}")
    refused.problems = (Flaw(name, rule),)
    return refused


class ElsewhereError(RefusedError):
    """Another member has the answer: 307, its name in a header, because addresses prove nothing."""

    def __init__(self, header: str, member: str, location: str, why: str) -> None:
        super().__init__(307, "elsewhere", f"{member} {why}", f"ask {location}")
        self.headers = {"Location": location, header: member}


def json_answer(value: object, status: int = 200) -> Response:
    """A JSON answer of a record."""
    return Response(_encode(value), status, media_type="application/json")


async def body_of(request: Request, kind: type[T]) -> T:
    """The decoded JSON body, bounded."""
    _must_be_json(request)
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            body = await _read(request)
    except (TimeoutError, ClientDisconnect):
        raise RefusedError(400, "no_body", f"the body did not come within {BODY_SECONDS_MAX:.0f} s") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RefusedError(422, "bad_request", f"the body is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, "not_json", f"the body is not JSON: {error}") from None


def _must_be_json(request: Request) -> None:
    """Refuse what a web page can make a browser send without asking first, with its user's certificate."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared not in ("", "application/json") and not declared.endswith("+json"):
        hint = "send 'Content-Type: application/json'; with curl: --json"
        raise RefusedError(415, "not_json", f"a body is JSON, not {declared[:64]!r}", hint)


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
