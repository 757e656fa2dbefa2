"""Program that a task runs: arguments, environment, working directory.

Brokers and wardens carry it as opaque bytes (``TaskGroup.payload``): it is encoded on submission, and the
runner decodes it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from hanse.model.attempt_key_derivation import SECRET_BYTES
from hanse.model.problem import Problem, describe_value, printable_name

SHELL: Final = ("/bin/sh", "-c")
"""Shell that runs a command written as one text."""
_NUMBER_MAX: Final = 1 << 64
"""Whole numbers among the arguments are printed; larger ones are surely a mistake."""
_FIELDS_ENCODED_MIN: Final = 3
"""Fields that every payload has: arguments, environment and directory."""


class Program(msgspec.Struct, frozen=True, array_like=True):
    """Program to run."""

    argv: tuple[str, ...]
    """Program and its arguments, at least one."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables set for it, sorted by name."""
    workdir: str = ""
    """Working directory; empty: the runner decides."""
    secret: bytes = b""
    """Secret from which the backend derives the key of each attempt (``derive_attempt_key``); empty: attempts
    have no keys. No task is given the secret itself."""


def encode_program(program: Program) -> bytes:
    """Encode a program as the payload of a group. Fields at the end that are not set are left out, so that
    the payload of a program without them stays as it was before they existed."""
    values = msgspec.structs.astuple(program)
    while len(values) > _FIELDS_ENCODED_MIN and not values[-1]:
        values = values[:-1]
    return msgspec.msgpack.encode(values)


def decode_program(payload: bytes) -> Program | None:
    """Decode a payload of ``encode_program``; None for anything else."""
    try:
        program = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # bad bytes can raise each of them
        return None
    return program if program.argv else None


_decoder = msgspec.msgpack.Decoder(Program)


def read_argv(value: object, field: str) -> tuple[str, ...] | Problem:
    """Read the user's ``command``: a text for the shell, or a list of the program and its arguments."""
    if isinstance(value, str):
        line = read_argument(value, field)
        if isinstance(line, Problem):
            return line
        return (
            (*SHELL, line)
            if line.strip()
            else Problem(field, "a command says what to run; this one is empty")
        )
    if not isinstance(value, list | tuple) or not value:
        return Problem(
            field,
            f"a command is a text, or a list of a program and its arguments, not {_empty_or_given(value)}",
        )
    argv: list[str] = []
    for index, item in enumerate(value):
        argument = read_argument(item, f"{field}[{index}]")
        if isinstance(argument, Problem):
            return argument
        argv.append(argument)
    return tuple(argv) if argv[0] else Problem(f"{field}[0]", "the program's name is empty")


def read_env(value: object, field: str) -> dict[str, str] | Problem:
    """Read the user's ``env``: a mapping of names to texts or whole numbers."""
    if not isinstance(value, Mapping):
        return Problem(field, f"this is a mapping of names to texts, not {describe_value(value)}")
    env: dict[str, str] = {}
    for name, item in value.items():
        if not isinstance(name, str) or not name or "=" in name or find_argument_problem(name) is not None:
            return Problem(field, f"a variable's name is a word without '=', not {describe_value(name)}")
        setting = read_argument(item, f"{field}.{printable_name(name)}")
        if isinstance(setting, Problem):
            return setting
        env[name] = setting
    return env


def read_secret(value: object, field: str) -> bytes | Problem:
    """Read the user's ``secret``: hexadecimal digits. A wrong value is not repeated in the problem."""
    try:
        secret = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        return Problem(field, f"a secret is a text of {2 * SECRET_BYTES} hexadecimal digits, drawn at random")
    return secret


def read_argument(value: object, field: str) -> str | Problem:
    """Read a text that a program can be given; whole numbers are printed."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
        return str(value)
    if not isinstance(value, str):
        hint = " (put it in quotes)" if isinstance(value, bool | int | float) else ""
        return Problem(field, f"this is a text, not {describe_value(value)}{hint}")
    rule = find_argument_problem(value)
    return value if rule is None else Problem(field, rule)


def find_argument_problem(text: str) -> str | None:
    """Return why no program can be given this text, as a sentence; None if it can."""
    if "\0" in text:
        return "a text for a program cannot contain the character NUL"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "this is not valid Unicode text: it holds half of a surrogate pair"
    return None


def _empty_or_given(value: object) -> str:
    return "an empty list" if isinstance(value, list | tuple) else describe_value(value)
