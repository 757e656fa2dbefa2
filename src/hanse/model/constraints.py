"""Constraints on a node's attributes: records, and the one reference rule of their truth.

A node's attributes are names with values: words, whole numbers or true/false. There are no fractions, because
two machines must agree on every comparison and every printed form; a version or a size is a whole number in a
unit that its name tells (``disk_gb``). A constraint is a small tree of the records below; ``is_satisfied``
defines its meaning, and every faster evaluation is tested against it. ``model.constraint_syntax`` reads and
writes the text form.

Two rules that are easily forgotten:

* A term about an attribute the node lacks is false, so ``not zone == "a"`` holds on a node without a zone.
* Kinds do not mix: ``1``, ``true`` and ``"1"`` are three values, and comparing a word with a number is false.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, assert_never

import msgspec

Value = str | int | bool
"""Value of an attribute. Numbers fit a signed 64-bit column."""
Attributes = Mapping[str, Value]
"""Attributes of a node by name."""
ComparisonOperator = Literal["<", "<=", ">", ">="]

DEPTH_MAX: Final = 32
"""Records on the longest path from the root to a leaf."""
TERMS_MAX: Final = 256
"""Records in the whole tree, where every value listed by ``In`` counts as one more."""
TEXT_CHARACTERS_MAX: Final = 256
"""Characters in an attribute's name or in a word."""
NUMBER_MAX: Final = (1 << 63) - 1
NUMBER_MIN: Final = -(1 << 63)
ATTRIBUTES_PER_NODE_MAX: Final = 256

RESERVED: Final = ("and", "exists", "false", "in", "not", "or", "true")
"""Words of the text form, which cannot be names of attributes."""
NAME_RULE: Final = "a letter or '_' followed by letters, digits, '_', '.', '-' or '/'"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*", re.ASCII)


class Is(msgspec.Struct, frozen=True, array_like=True, tag="is"):
    """Condition that the attribute has exactly this value."""

    attribute: str
    value: Value

    # In Python True == 1, but records of different meaning must never be one dictionary key.
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Is)
            and self.attribute == other.attribute
            and is_same_value(self.value, other.value)
        )

    __hash__ = msgspec.Struct.__hash__  # equal records have equal fields, so the inherited hash is right


class In(msgspec.Struct, frozen=True, array_like=True, tag="in"):
    """Condition that the attribute has one of these values."""

    attribute: str
    values: tuple[Value, ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, In)
            and self.attribute == other.attribute
            and len(self.values) == len(other.values)
            and all(is_same_value(mine, its) for mine, its in zip(self.values, other.values, strict=True))
        )

    __hash__ = msgspec.Struct.__hash__


class Has(msgspec.Struct, frozen=True, array_like=True, tag="has"):
    """Condition that the node has the attribute, with any value."""

    attribute: str


class Compare(msgspec.Struct, frozen=True, array_like=True, tag="compare"):
    """Condition that the attribute is a whole number on this side of ``bound``."""

    attribute: str
    operator: ComparisonOperator
    bound: int


class Not(msgspec.Struct, frozen=True, array_like=True, tag="not"):
    """Opposite of ``term``, and so true where a plain term lacks its attribute."""

    term: "Constraint"


class AllOf(msgspec.Struct, frozen=True, array_like=True, tag="all"):
    """Condition that every term holds; of no terms: always true."""

    terms: "tuple[Constraint, ...]"


class AnyOf(msgspec.Struct, frozen=True, array_like=True, tag="any"):
    """Condition that at least one term holds; of no terms: never true."""

    terms: "tuple[Constraint, ...]"


Constraint = Is | In | Has | Compare | Not | AllOf | AnyOf

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())


def value_key(value: Value) -> tuple[int, Value]:
    """Return a key that keeps ``True`` and ``1`` apart and sorts mixed values: false, true, numbers,
    words."""
    if isinstance(value, bool):
        return (0, value)
    return (1, value) if isinstance(value, int) else (2, value)


def is_same_value(left: Value, right: Value) -> bool:
    """True if two values are equal and of one kind."""
    return type(left) is type(right) and left == right


def is_satisfied(constraint: Constraint, attributes: Attributes) -> bool:
    """True if a node with these attributes satisfies the constraint. This defines the meaning of
    constraints."""
    match constraint:
        case Is(attribute, value):
            return attribute in attributes and is_same_value(attributes[attribute], value)
        case In(attribute, values):
            return attribute in attributes and any(
                is_same_value(attributes[attribute], value) for value in values
            )
        case Has(attribute):
            return attribute in attributes
        case Compare(attribute, order, bound):
            return attribute in attributes and is_comparison_true(attributes[attribute], order, bound)
        case Not(term):
            return not is_satisfied(term, attributes)
        case AllOf(terms):
            return all(is_satisfied(term, attributes) for term in terms)
        case AnyOf(terms):
            return any(is_satisfied(term, attributes) for term in terms)
        case _:
            assert_never(constraint)


def is_comparison_true(value: Value, order: ComparisonOperator, bound: int) -> bool:
    """True if ``value order bound`` is true; never for words and true/false."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    if order == "<":
        return value < bound
    if order == "<=":
        return value <= bound
    return value > bound if order == ">" else value >= bound


def walk(constraint: Constraint) -> Iterator[tuple[int, Constraint]]:
    """Yield every record of the tree with its depth (the root has 1), parents first, without recursion."""
    waiting: list[tuple[int, Constraint]] = [(1, constraint)]
    while waiting:
        depth, record = waiting.pop()
        yield depth, record
        if isinstance(record, Not):
            waiting.append((depth + 1, record.term))
        elif isinstance(record, AllOf | AnyOf):
            waiting.extend((depth + 1, term) for term in reversed(record.terms))


def attributes_of(constraint: Constraint) -> tuple[str, ...]:
    """Return the names of the attributes in a constraint, sorted, each once."""
    names = {
        record.attribute: None
        for _, record in walk(constraint)
        if isinstance(record, Is | In | Has | Compare)
    }
    return tuple(sorted(names))


def constraint_problem(constraint: Constraint) -> str | None:
    """Return what is wrong with a constraint's size or its words, as a sentence; None if it is valid."""
    terms = 0
    for depth, record in walk(constraint):
        terms += 1 + (len(record.values) if isinstance(record, In) else 0)
        if depth > DEPTH_MAX:
            return f"a condition may nest at most {DEPTH_MAX} levels deep; write it flatter"
        if terms > TERMS_MAX:
            return f"a condition may have at most {TERMS_MAX} terms and listed values together"
        problem = _leaf_problem(record)
        if problem is not None:
            return problem
    return None


def _leaf_problem(record: Constraint) -> str | None:
    if isinstance(record, Not | AllOf | AnyOf):
        return None
    problem = name_problem(record.attribute)
    if problem is not None:
        return problem
    values: tuple[Value, ...] = ()
    if isinstance(record, Is):
        values = (record.value,)
    elif isinstance(record, In):
        if not record.values:
            return f"'{record.attribute} in ()' lists no values, so it could never hold; list at least one"
        values = record.values
    elif isinstance(record, Compare):
        if isinstance(record.bound, bool):
            return (
                f"'{record.attribute}' is compared with true/false; '{record.operator}' needs a whole number"
            )
        values = (record.bound,)
    for value in values:
        problem = value_problem(value)
        if problem is not None:
            return f"the value for '{record.attribute}': {problem}"
    return None


def name_problem(name: str) -> str | None:
    """Return why this cannot be an attribute's name, as a sentence; None if it can."""
    if len(name) > TEXT_CHARACTERS_MAX:
        return f"an attribute's name has at most {TEXT_CHARACTERS_MAX} characters; this one has {len(name)}"
    if name in RESERVED:
        return f"'{name}' is a word of the language and cannot name an attribute"
    if _NAME.fullmatch(name) is None:
        return f"an attribute's name is {NAME_RULE}; {name!r} is not"
    return None


def value_problem(value: object) -> str | None:
    """Return why this cannot be an attribute's value, as a sentence; None if it can."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if NUMBER_MIN <= value <= NUMBER_MAX:
            return None
        return "a whole number must fit 64 bits (at most 9223372036854775807)"
    if not isinstance(value, str):
        return f"a value is a word, a whole number or true/false, not {type(value).__name__}"
    if len(value) > TEXT_CHARACTERS_MAX:
        return f"a word has at most {TEXT_CHARACTERS_MAX} characters; this one has {len(value)}"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "a word must be valid Unicode text; this one holds half of a surrogate pair"
    return None


def attributes_problem(attributes: Attributes) -> str | None:
    """Return what is wrong with a node's attributes, as a sentence; None if they are valid."""
    if len(attributes) > ATTRIBUTES_PER_NODE_MAX:
        return f"a node has at most {ATTRIBUTES_PER_NODE_MAX} attributes; this one has {len(attributes)}"
    for name, value in attributes.items():
        problem = name_problem(name)
        if problem is not None:
            return problem
        problem = value_problem(value)
        if problem is not None:
            return f"attribute '{name}': {problem}"
    return None


def normalise(constraint: Constraint) -> Constraint:
    """Return one normal record for many ways to write the same: flattened, sorted, without repeats.

    The normal form keeps the meaning and is idempotent. Contradictions are not detected, so two constraints
    of equal meaning may still have two normal forms.
    """
    match constraint:
        case In(attribute, values):
            return _one_of(attribute, values)
        case Compare(attribute, "<", bound) if bound > NUMBER_MIN:
            return Compare(attribute, "<=", bound - 1)
        case Compare(attribute, ">", bound) if bound < NUMBER_MAX:
            return Compare(attribute, ">=", bound + 1)
        case Not(term):
            return _negate(normalise(term))
        case AllOf(terms):
            flat = _flatten(tuple(normalise(term) for term in terms), AllOf)
            if NEVER in flat:
                return NEVER
            return flat[0] if len(flat) == 1 else AllOf(_sort_terms(flat))
        case AnyOf(terms):
            flat = _merge_values(_flatten(tuple(normalise(term) for term in terms), AnyOf))
            if ALWAYS in flat:
                return ALWAYS
            return flat[0] if len(flat) == 1 else AnyOf(_sort_terms(flat))
        case _:
            return constraint


def _one_of(attribute: str, values: tuple[Value, ...]) -> Constraint:
    """Return the simplest record of ``attribute in values``."""
    kept = {value_key(value): value for value in values}
    if len(kept) == 1:
        return Is(attribute, values[0])
    return In(attribute, tuple(kept[key] for key in sorted(kept))) if kept else NEVER


def _negate(term: Constraint) -> Constraint:
    """Return ``Not(term)`` for a normal ``term``, without double negation."""
    if isinstance(term, Not):
        return term.term
    if term == ALWAYS:
        return NEVER
    return ALWAYS if term == NEVER else Not(term)


def _flatten(terms: tuple[Constraint, ...], kind: type[AllOf] | type[AnyOf]) -> tuple[Constraint, ...]:
    """Replace terms of ``kind`` by their own terms, and drop repeats (the first stays). The terms are normal,
    so theirs are not of ``kind`` again."""
    flat: dict[Constraint, None] = {}
    for term in terms:
        for part in term.terms if isinstance(term, kind) else (term,):
            flat[part] = None
    return tuple(flat)


def _merge_values(terms: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Merge ``a == 1 or a in (2, 3)`` into one ``in``."""
    values: dict[str, tuple[Value, ...]] = {}
    rest: list[Constraint] = []
    for term in terms:
        if isinstance(term, Is):
            values[term.attribute] = (*values.get(term.attribute, ()), term.value)
        elif isinstance(term, In):
            values[term.attribute] = values.get(term.attribute, ()) + term.values
        else:
            rest.append(term)
    return (*(_one_of(attribute, values[attribute]) for attribute in values), *rest)


def _sort_terms(terms: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Sort by encoded form: any order is right as long as every machine has the same."""
    return tuple(sorted(terms, key=msgspec.msgpack.encode))
