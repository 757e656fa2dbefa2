"""Text form of constraints, as people write it in a job::

    arch == "arm64" and zone in ("a", "b") and not gpu_model exists and disk_gb >= 100 or (rack != 'r7')

* ``name == value``: equal and of the same kind. ``!=`` is its opposite, and so it also holds where the
  attribute is missing; write ``name exists and name != value`` to exclude that.
* ``name in (v, ...)``: one of these values; ``name not in (v, ...)`` is its opposite.
* ``name exists``, also ``has(name)``: the node has the attribute.
* ``name < n``, also ``<=``, ``>``, ``>=``: whole numbers only.
* ``not``, ``and``, ``or`` bind in this order; brackets group.
* ``all(c, ...)``, ``any(c, ...)``: ``and`` and ``or`` for lists of any length; ``all()`` always holds.

A value is a word in single or double quotes (with the escapes ``\\\\ \\' \\" \\n \\r \\t \\uXXXX
\\UXXXXXXXX``), a whole number, ``true`` or ``false``. An attribute's name is a letter or ``_`` followed by
letters, digits, ``_``, ``.``, ``-`` or ``/``. ``parse_constraint`` keeps what was written as it was written;
``constraints.normalise`` makes it comparable.
"""

from typing import Final, assert_never

import msgspec

from hanse.model.constraint_tokens import MARKS, SyntaxFailure, Token, read_token
from hanse.model.constraints import (
    DEPTH_MAX,
    RESERVED,
    TERMS_MAX,
    AllOf,
    AnyOf,
    Compare,
    ComparisonOperator,
    Constraint,
    Has,
    In,
    Is,
    Not,
    Value,
    constraint_problem,
)

WHERE_CHARACTERS_MAX: Final = 1 << 20
"""Maximum length of a condition, above the longest printed form of a valid constraint."""
_SHOWN_MAX: Final = 60
"""Characters of the text shown around the place of an error."""
_ORDERS: Final[dict[str, ComparisonOperator]] = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OPERATORS: Final = "'==', '!=', '<', '<=', '>', '>=', 'in', 'not in' or 'exists'"


class ConstraintSyntaxProblem(msgspec.Struct, frozen=True):
    """Reason why a text is not a constraint."""

    position: int
    """Place of the error, in characters from 0."""
    message: str
    """Expected text, with the place shown on a second and third line."""


def parse_constraint(text: str) -> Constraint | ConstraintSyntaxProblem:
    """Parse a constraint as written, or return the place and reason of the first error."""
    if len(text) > WHERE_CHARACTERS_MAX:
        return ConstraintSyntaxProblem(
            0, f"a condition has at most {WHERE_CHARACTERS_MAX} characters, not {len(text)}"
        )
    try:
        parser = _ConstraintParser(text)
        constraint = parser.parse_any()
        parser.expect_end()
    except SyntaxFailure as error:
        return ConstraintSyntaxProblem(error.position, _point_at(text, error.position, error.reason))
    problem = constraint_problem(constraint)
    return constraint if problem is None else ConstraintSyntaxProblem(0, problem)


def _point_at(text: str, position: int, reason: str) -> str:
    """Return the reason, then the text around the place, then a caret under it."""
    first = max(0, position - _SHOWN_MAX // 2)
    piece = text[first : first + _SHOWN_MAX]
    before = "..." if first else ""
    after = "..." if first + _SHOWN_MAX < len(text) else ""
    caret = " " * (len(before) + position - first) + "^"
    return f"at character {position + 1}: {reason}\n  {before}{_flat(piece)}{after}\n  {caret}"


def _flat(piece: str) -> str:
    """Replace unprintable characters by spaces, so that the caret stands under its place."""
    return "".join(character if character.isprintable() else " " for character in piece)


class _ConstraintParser:
    """Recursive descent parser with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nesting = 0
        self._terms = 0
        self._next = read_token(text, 0)

    def expect_end(self) -> None:
        """Check that nothing follows the constraint."""
        if self._next.kind != "end":
            raise self._fail_expected("'and', 'or' or the end")

    def parse_any(self) -> Constraint:
        """Parse terms joined by ``or``."""
        terms = [self._parse_all()]
        while self._skip_if("or"):
            terms.append(self._parse_all())
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def _parse_all(self) -> Constraint:
        terms = [self._parse_not()]
        while self._skip_if("and"):
            terms.append(self._parse_not())
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def _parse_not(self) -> Constraint:
        if self._next.text == "not" and self._next.kind == "name":
            self._enter_bracket()
            term = Not(self._parse_not())
            self._nesting -= 1
            return term
        return self._parse_primary()

    def _parse_primary(self) -> Constraint:
        token = self._next
        if token.kind == "(":
            self._enter_bracket()
            constraint = self.parse_any()
            if not self._skip_if(")"):
                raise self._fail_expected("'and', 'or' or ')'")
            self._nesting -= 1
            return constraint
        if token.kind != "name" or token.text in RESERVED:
            raise self._fail_expected("a condition such as 'zone == \"a\"'")
        self._advance()
        if self._next.kind == "(":
            return self._parse_call(token)
        return self._parse_condition(token.text)

    def _parse_call(self, called: Token) -> Constraint:
        """Parse ``has(name)``, ``all(...)`` or ``any(...)``; the next token is the opening bracket."""
        if called.text not in ("has", "all", "any"):
            raise SyntaxFailure(
                called.start,
                f"there is no function '{called.text[:_SHOWN_MAX]}'; known are has(...), all(...), any(...)",
            )
        self._enter_bracket()
        self._count_term()
        if called.text == "has":
            token = self._next
            if token.kind != "name" or token.text in RESERVED:
                raise self._fail_expected("an attribute's name")
            self._advance()
            constraint: Constraint = Has(token.text)
        else:
            terms: list[Constraint] = []
            while self._next.kind != ")" and (not terms or self._skip_if(",")):
                terms.append(self.parse_any())
            constraint = AllOf(tuple(terms)) if called.text == "all" else AnyOf(tuple(terms))
        if not self._skip_if(")"):
            raise self._fail_expected("')'" if called.text == "has" else "',' or ')'")
        self._nesting -= 1
        return constraint

    def _parse_condition(self, attribute: str) -> Constraint:
        """Parse a condition on an attribute after its name was read."""
        self._count_term()
        operator = self._next
        if operator.kind in _ORDERS:
            self._advance()
            return Compare(attribute, _ORDERS[operator.kind], self._parse_number(operator.kind))
        if self._skip_if("=="):
            return Is(attribute, self._parse_value())
        if self._skip_if("!="):
            return Not(Is(attribute, self._parse_value()))
        if self._skip_if("exists"):
            return Has(attribute)
        if self._skip_if("in"):
            return In(attribute, self._parse_values())
        if self._skip_if("not"):
            if not self._skip_if("in"):
                raise self._fail_expected(
                    "'in' after 'not' (to deny a whole condition, write 'not' before it)"
                )
            return Not(In(attribute, self._parse_values()))
        raise self._fail_expected(f"one of {_OPERATORS} after '{attribute[:_SHOWN_MAX]}'")

    def _parse_values(self) -> tuple[Value, ...]:
        if not self._skip_if("("):
            raise self._fail_expected("a list of values in brackets, such as ('a', 'b')")
        values = [self._parse_value()]
        while self._skip_if(","):
            self._count_term()
            values.append(self._parse_value())
        if not self._skip_if(")"):
            raise self._fail_expected("',' or ')'")
        return tuple(values)

    def _parse_value(self) -> Value:
        token = self._next
        if token.kind == "name" and token.text in ("true", "false"):
            self._advance()
            return token.text == "true"
        if token.kind == "name" and token.text not in RESERVED:
            raise SyntaxFailure(token.start, f'a word needs quotes: "{token.text[:_SHOWN_MAX]}"')
        if token.kind != "value":
            raise self._fail_expected("a value: a word in quotes, a whole number, true or false")
        self._advance()
        return token.value

    def _parse_number(self, operator: str) -> int:
        token = self._next
        if token.kind != "value" or not isinstance(token.value, int):
            raise self._fail_expected(f"a whole number after '{operator}' (only numbers have an order)")
        self._advance()
        return token.value

    def _skip_if(self, text: str) -> bool:
        """Skip the next token if it is this word or mark."""
        if self._next.text != text or self._next.kind not in ("name", text):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._next = read_token(self._text, self._next.end)

    def _enter_bracket(self) -> None:
        """Skip an opening bracket or ``not``, and count it: the bound limits the recursion."""
        self._nesting += 1
        if self._nesting > DEPTH_MAX:
            raise SyntaxFailure(self._next.start, f"brackets and 'not' nest at most {DEPTH_MAX} levels deep")
        self._advance()

    def _count_term(self) -> None:
        """Stop early in a text with too many terms, before records are built for all of them."""
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise SyntaxFailure(
                self._next.start, f"a condition may have at most {TERMS_MAX} terms and listed values together"
            )

    def _fail_expected(self, what: str) -> SyntaxFailure:
        token = self._next
        found = "the end" if token.kind == "end" else _flat(token.text[:_SHOWN_MAX])
        if token.kind == "name" or token.kind in MARKS:
            found = f"'{found}'"
        hint = ""
        if token.kind == "name" and token.text not in RESERVED and token.text.lower() in RESERVED:
            hint = f" (write '{token.text.lower()}' in small letters)"
        return SyntaxFailure(token.start, f"expected {what}, found {found}{hint}")


def format_constraint(constraint: Constraint) -> str:
    """Return the text form; ``parse_constraint`` returns an equal constraint if this one is valid."""
    match constraint:
        case Is(attribute, value):
            return f"{attribute} == {_value_text(value)}"
        case In(attribute, values):
            return f"{attribute} in ({', '.join(map(_value_text, values))})"
        case Has(attribute):
            return f"{attribute} exists"
        case Compare(attribute, order, bound):
            return f"{attribute} {order} {bound}"
        case Not(Is(attribute, value)):
            return f"{attribute} != {_value_text(value)}"
        case Not(In(attribute, values)):
            return f"{attribute} not in ({', '.join(map(_value_text, values))})"
        case Not(term):
            return f"not {_bracketed_text(term, (AllOf, AnyOf))}"
        case AllOf(terms) if len(terms) > 1:
            return " and ".join(_bracketed_text(term, (AllOf, AnyOf)) for term in terms)
        case AnyOf(terms) if len(terms) > 1:
            return " or ".join(_bracketed_text(term, (AnyOf,)) for term in terms)
        case AllOf(terms) | AnyOf(terms):  # of one term or none, which 'and' and 'or' cannot say
            words = ", ".join(map(format_constraint, terms))
            return f"{'all' if isinstance(constraint, AllOf) else 'any'}({words})"
        case _:
            assert_never(constraint)


def _bracketed_text(term: Constraint, kinds: tuple[type[AllOf] | type[AnyOf], ...]) -> str:
    """Return a term's text, in brackets if it is a list of these kinds and would be ambiguous."""
    printed = format_constraint(term)
    loose = isinstance(term, AllOf | AnyOf) and len(term.terms) > 1 and type(term) in kinds
    return f"({printed})" if loose else printed


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(map(_character_text, value)) + '"'


def _character_text(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    point = ord(character)
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
