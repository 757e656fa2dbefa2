"""Tokens of the text form of constraints: names, values, marks.

``model.constraint_syntax`` explains the language.
"""

import re
from typing import Final

import msgspec

from hanse.model.constraints import NUMBER_MAX, NUMBER_MIN, Value

_DIGITS_MAX: Final = 19
"""Digits of the largest 64-bit number; longer ones are refused before they are converted."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_GLUED: Final = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
MARKS: Final = ("==", "!=", "<=", ">=", "<", ">", "(", ")", ",")
_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_SLIPS: Final = {
    "=": "write '==' to compare",
    "&": "write 'and'",
    "|": "write 'or'",
    "!": "write 'not', or '!=' to compare",
}


class Token(msgspec.Struct, frozen=True):
    """Token, and where it stands in the text."""

    kind: str
    """``name``, ``value``, ``end``, or the mark itself."""
    start: int
    end: int
    text: str
    value: Value = ""


class SyntaxFailure(Exception):  # noqa: N818 - stays between two modules: parse_constraint() returns a value
    """Exception that carries the first error out of the recursive descent."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def read_token(text: str, position: int) -> Token:
    """Return the token at or after ``position``."""
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    if position == len(text):
        return Token("end", position, position, "")
    name = _NAME.match(text, position)
    if name is not None:
        return Token("name", position, name.end(), name.group())
    if text[position] in "\"'":
        return _read_quoted(text, position)
    if _NUMBER.match(text, position) is not None:
        return _read_number(text, position)
    for mark in MARKS:
        if text.startswith(mark, position):
            return Token(mark, position, position + len(mark), mark)
    character = text[position]
    hint = _SLIPS.get(character, "names, quoted words, whole numbers, comparisons and brackets are")
    raise SyntaxFailure(position, f"{character!r} is not part of the language; {hint}")


def _read_number(text: str, start: int) -> Token:
    found = _NUMBER.match(text, start)
    assert found is not None
    digits = found.group()
    glued = _GLUED.match(text, found.end())
    if glued is not None:
        if glued.group().startswith("."):
            raise SyntaxFailure(
                start, "numbers are whole; write a fraction in a smaller unit, a version in quotes"
            )
        raise SyntaxFailure(
            start, f"expected a whole number without a unit, found '{digits + glued.group()}'"[:200]
        )
    if len(digits.lstrip("-")) > _DIGITS_MAX or not NUMBER_MIN <= int(digits) <= NUMBER_MAX:
        raise SyntaxFailure(start, f"a whole number must fit 64 bits ({NUMBER_MIN} to {NUMBER_MAX})")
    return Token("value", start, found.end(), digits, int(digits))


def _read_quoted(text: str, start: int) -> Token:
    """Read a word in quotes; ``start`` is at the opening quote."""
    quote = text[start]
    parts: list[str] = []
    position = start + 1
    while position < len(text) and text[position] != quote:
        if text[position] == "\\":
            part, position = _read_escape(text, position)
        else:
            part, position = text[position], position + 1
        parts.append(part)
    if position >= len(text):
        raise SyntaxFailure(start, f"this word has no closing {quote}")
    return Token("value", start, position + 1, text[start : position + 1], "".join(parts))


def _read_escape(text: str, start: int) -> tuple[str, int]:
    """Return the character of an escape and the position after it; ``start`` is at the backslash."""
    letter = text[start + 1 : start + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], start + 2
    if letter in ("u", "U"):
        width = 4 if letter == "u" else 8
        digits = text[start + 2 : start + 2 + width]
        if len(digits) == width and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            point = int(digits, 16)
            if point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
                return chr(point), start + 2 + width
        raise SyntaxFailure(start, f"'\\{letter}' needs {width} hexadecimal digits that name a character")
    raise SyntaxFailure(
        start, "after a backslash comes one of \\ ' \" n r t u U; write '\\\\' for a backslash itself"
    )
