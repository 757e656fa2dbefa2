"""What constraints mean, their bounds and their normal form."""

import msgspec
import pytest
from hypothesis import given

from hanse.model.constraints import (
    ALWAYS,
    ATTRIBUTES_PER_NODE_MAX,
    DEPTH_MAX,
    NEVER,
    NUMBER_MAX,
    NUMBER_MIN,
    TERMS_MAX,
    TEXT_CHARACTERS_MAX,
    AllOf,
    AnyOf,
    Attributes,
    Compare,
    Constraint,
    Has,
    In,
    Is,
    Not,
    attributes_of,
    attributes_problem,
    constraint_problem,
    is_satisfied,
    normalise,
)
from tests.model.drawn import constraints, nodes

NODE: Attributes = {"zone": "a", "disk_gb": 100, "ssd": True, "rev": 1}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (Is("zone", "a"), True),
        (Is("zone", "b"), False),
        (Is("missing", "a"), False),
        (Not(Is("missing", "a")), True),
        (Is("ssd", True), True),
        (Is("ssd", 1), False),
        (Is("rev", True), False),
        (Is("disk_gb", "100"), False),
        (In("zone", ("b", "a")), True),
        (In("rev", (True, "1")), False),
        (In("zone", ()), False),
        (Has("zone"), True),
        (Has("missing"), False),
        (Compare("disk_gb", "<", 101), True),
        (Compare("disk_gb", "<", 100), False),
        (Compare("disk_gb", "<=", 100), True),
        (Compare("disk_gb", "<=", 99), False),
        (Compare("disk_gb", ">", 99), True),
        (Compare("disk_gb", ">", 100), False),
        (Compare("disk_gb", ">=", 100), True),
        (Compare("disk_gb", ">=", 101), False),
        (Compare("zone", ">=", 0), False),
        (Compare("ssd", ">=", 0), False),
        (Compare("missing", "<", 5), False),
        (Not(Compare("missing", "<", 5)), True),
        (AllOf((Has("zone"), Has("rev"))), True),
        (AllOf((Has("zone"), Has("missing"))), False),
        (AnyOf((Has("missing"), Has("rev"))), True),
        (AnyOf((Has("missing"),)), False),
        (ALWAYS, True),
        (NEVER, False),
    ],
)
def test_holds(constraint: Constraint, expected: bool) -> None:
    assert is_satisfied(constraint, NODE) is expected


def test_true_and_one_are_two_records_and_two_keys() -> None:
    assert Is("x", True) != Is("x", 1)
    assert In("x", (True,)) != In("x", (1,))
    assert AllOf((Is("x", True),)) != AllOf((Is("x", 1),))
    assert len({Is("x", True): 0, Is("x", 1): 1, Is("x", "1"): 2}) == 3
    assert Is("x", 1) == Is("x", 1)
    assert Is("x", 1) != In("x", (1,))


@given(constraints)
def test_the_wire_keeps_constraints(constraint: Constraint) -> None:
    for encode, decode in (
        (msgspec.msgpack.encode, msgspec.msgpack.decode),
        (msgspec.json.encode, msgspec.json.decode),
    ):
        assert decode(encode(constraint), type=Constraint) == constraint


@given(constraints, nodes)
def test_normalising_keeps_the_meaning(constraint: Constraint, node: Attributes) -> None:
    assert is_satisfied(normalise(constraint), node) is is_satisfied(constraint, node)


@given(constraints)
def test_normalising_twice_changes_nothing_more(constraint: Constraint) -> None:
    normal = normalise(constraint)
    assert normalise(normal) == normal


@given(constraints, constraints, constraints)
def test_order_nesting_and_repeats_do_not_matter(a: Constraint, b: Constraint, c: Constraint) -> None:
    for kind in (AllOf, AnyOf):
        expected = normalise(kind((a, b, c)))
        assert normalise(kind((c, b, a, b))) == expected
        assert normalise(kind((kind((a, c)), b))) == expected
        assert normalise(Not(Not(kind((b, kind((a,)), c))))) == expected


@pytest.mark.parametrize(
    ("constraint", "normal"),
    [
        (In("a", (2, 1, 2)), In("a", (1, 2))),
        (In("a", (True, 1)), In("a", (True, 1))),
        (In("a", ("x",)), Is("a", "x")),
        (In("a", ()), NEVER),
        (AnyOf((Is("a", 1), Is("a", 2), Is("b", 1))), AnyOf((In("a", (1, 2)), Is("b", 1)))),
        (AnyOf((Is("a", 2), Is("a", 1))), In("a", (1, 2))),
        (Compare("a", "<", 5), Compare("a", "<=", 4)),
        (Compare("a", ">", 5), Compare("a", ">=", 6)),
        (Compare("a", "<", NUMBER_MIN), Compare("a", "<", NUMBER_MIN)),
        (Compare("a", ">", NUMBER_MAX), Compare("a", ">", NUMBER_MAX)),
        (AllOf((Has("a"), NEVER)), NEVER),
        (AnyOf((Has("a"), Not(NEVER))), ALWAYS),
        (AllOf((AllOf(()), Has("a"))), Has("a")),
    ],
)
def test_normal_forms(constraint: Constraint, normal: Constraint) -> None:
    assert normalise(constraint) == normalise(normal)
    if not isinstance(normal, AnyOf):  # the order inside a list is the encoder's business
        assert normalise(constraint) == normal


def test_attributes_are_named_once_and_sorted() -> None:
    constraint = AllOf((Is("z", 1), Not(AnyOf((Has("a"), Compare("m", "<", 3)))), In("a", (1, 2))))
    assert attributes_of(constraint) == ("a", "m", "z")


@given(constraints)
def test_drawn_constraints_are_sound(constraint: Constraint) -> None:
    assert constraint_problem(constraint) is None


def nested(levels: int) -> Constraint:
    constraint: Constraint = Has("a")
    for _ in range(levels - 1):
        constraint = Not(constraint)
    return constraint


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (nested(DEPTH_MAX + 1), "levels deep"),
        (nested(5_000), "levels deep"),
        (AllOf((Has("a"),) * TERMS_MAX), "at most 256 terms"),
        (In("a", tuple(range(TERMS_MAX))), "at most 256 terms"),
        (Has("a" * (TEXT_CHARACTERS_MAX + 1)), "at most 256 characters"),
        (Is("a", "x" * (TEXT_CHARACTERS_MAX + 1)), "at most 256 characters"),
        (Has("and"), "word of the language"),
        (Has("9a"), "an attribute's name is"),
        (Has(""), "an attribute's name is"),
        (Has("a\n"), "an attribute's name is"),
        (Is("a", NUMBER_MAX + 1), "fit 64 bits"),
        (Compare("a", "<", NUMBER_MIN - 1), "fit 64 bits"),
        (Compare("a", "<", True), "needs a whole number"),
        (Is("a", "\ud800"), "Unicode"),
        (In("a", ()), "lists no values"),
    ],
)
def test_unsound_constraints_are_told_why(constraint: Constraint, words: str) -> None:
    problem = constraint_problem(constraint)
    assert problem is not None
    assert words in problem


def test_the_bounds_themselves_are_allowed() -> None:
    assert constraint_problem(nested(DEPTH_MAX)) is None
    assert constraint_problem(AllOf((Has("a"),) * (TERMS_MAX - 1))) is None
    assert constraint_problem(Is("a" * TEXT_CHARACTERS_MAX, "x" * TEXT_CHARACTERS_MAX)) is None


def test_attributes_of_a_node_are_checked() -> None:
    assert attributes_problem(NODE) is None
    assert "word of the language" in str(attributes_problem({"not": 1}))
    assert "attribute 'a'" in str(attributes_problem({"a": 1 << 64}))
    crowd: Attributes = {f"a{index}": index for index in range(ATTRIBUTES_PER_NODE_MAX + 1)}
    assert "at most 256 attributes" in str(attributes_problem(crowd))
