"""The text form of constraints: what it says, that it comes back, and what its errors tell."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hanse.model.constraint_syntax import (
    WHERE_CHARACTERS_MAX,
    ConstraintSyntaxProblem,
    format_constraint,
    parse_constraint,
)
from hanse.model.constraints import (
    ALWAYS,
    DEPTH_MAX,
    NEVER,
    NUMBER_MIN,
    TERMS_MAX,
    TEXT_CHARACTERS_MAX,
    AllOf,
    AnyOf,
    Compare,
    Constraint,
    Has,
    In,
    Is,
    Not,
    constraint_problem,
)
from tests.model.drawn import constraints


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('arch == "arm64"', Is("arch", "arm64")),
        ("arch != 'x'", Not(Is("arch", "x"))),
        ("n == -5", Is("n", -5)),
        ("n == true", Is("n", True)),
        (f"n == {NUMBER_MIN}", Is("n", NUMBER_MIN)),
        ("zone in ('a',\"b\", 3, false)", In("zone", ("a", "b", 3, False))),
        ("zone not in ('a')", Not(In("zone", ("a",)))),
        ("not zone in ('a')", Not(In("zone", ("a",)))),
        ("a exists", Has("a")),
        ("has(a)", Has("a")),
        ("has == 1", Is("has", 1)),
        ("d<1", Compare("d", "<", 1)),
        ("d<=1", Compare("d", "<=", 1)),
        ("d>-1", Compare("d", ">", -1)),
        ("d>=1", Compare("d", ">=", 1)),
        ("a/b.c-d exists", Has("a/b.c-d")),
        ("not a exists and b exists", AllOf((Not(Has("a")), Has("b")))),
        ("not (a exists and b exists)", Not(AllOf((Has("a"), Has("b"))))),
        ("a exists or b exists and c exists", AnyOf((Has("a"), AllOf((Has("b"), Has("c")))))),
        ("(a exists or b exists) and c exists", AllOf((AnyOf((Has("a"), Has("b"))), Has("c")))),
        ("a exists and b exists and c exists", AllOf((Has("a"), Has("b"), Has("c")))),
        ("not not a exists", Not(Not(Has("a")))),
        ("all()", ALWAYS),
        ("any( )", NEVER),
        ("any(a exists, b exists)", AnyOf((Has("a"), Has("b")))),
        (r"""x == 'it\'s \"\\\n\r\t\u00e9\U0001F4A9'""", Is("x", "it's \"\\\n\r\té\U0001f4a9")),
        ("\n a\texists\r\n", Has("a")),
        (
            'arch == "arm64" and zone in ("a","b") and not gpu_model exists and disk_gb >= 100 or (x != "y")',
            AnyOf(
                (
                    AllOf(
                        (
                            Is("arch", "arm64"),
                            In("zone", ("a", "b")),
                            Not(Has("gpu_model")),
                            Compare("disk_gb", ">=", 100),
                        )
                    ),
                    Not(Is("x", "y")),
                )
            ),
        ),
    ],
)
def test_what_is_written_is_what_is_meant(written: str, meant: Constraint) -> None:
    assert parse_constraint(written) == meant


@given(constraints)
@example(AllOf((AllOf((Has("a"), Has("b"))), Has("c"))))
@example(AnyOf((AnyOf((Has("a"), Has("b"))), AllOf((Has("c"), Has("d"))))))
@example(Not(AllOf((Has("a"),))))
def test_what_is_printed_comes_back(constraint: Constraint) -> None:
    assert parse_constraint(format_constraint(constraint)) == constraint


def test_the_largest_sound_constraints_come_back() -> None:
    deep: Constraint = Has("a")
    for level in range(DEPTH_MAX - 1):
        deep = (
            Not(deep)
            if level % 3 == 0
            else AllOf((deep, Has("b")))
            if level % 3 == 1
            else AnyOf((deep, Has("c")))
        )
    single: Constraint = Has("a")
    for _ in range(DEPTH_MAX - 1):
        single = AllOf((single,))
    mixed: Constraint = Has("a")
    for level in range(DEPTH_MAX - 1):
        mixed = AnyOf((mixed,)) if level % 2 else Not(mixed)
    name, word = "n" * TEXT_CHARACTERS_MAX, "\U000e0001" * TEXT_CHARACTERS_MAX
    wide = AllOf(tuple(Is(name, word) for _ in range(TERMS_MAX - 1)))
    for constraint in (deep, single, mixed, wide):
        assert constraint_problem(constraint) is None
        assert parse_constraint(format_constraint(constraint)) == constraint


@pytest.mark.parametrize(
    ("written", "position", "words"),
    [
        ("", 0, "expected a condition"),
        ("arch", 4, "after 'arch', found the end"),
        ("arch ==", 7, "expected a value"),
        ("arch == arm64", 8, 'a word needs quotes: "arm64"'),
        ("a = 1", 2, "write '=='"),
        ("a exists && b exists", 9, "write 'and'"),
        ("a exists || b exists", 9, "write 'or'"),
        ("!a exists", 0, "write 'not'"),
        ('a >= "5"', 5, "a whole number after '>='"),
        ("a >= true", 5, "a whole number after '>='"),
        ("a >= 100GB", 5, "without a unit"),
        ("a == 1.5", 5, "numbers are whole"),
        ("a == 9223372036854775808", 5, "fit 64 bits"),
        ("a == " + "9" * 10_000, 5, "fit 64 bits"),
        ("a in 3", 5, "list of values in brackets"),
        ("a in ()", 6, "expected a value"),
        ("a in (1 2)", 8, "expected ',' or ')'"),
        ("a not exists", 6, "expected 'in' after 'not'"),
        ("near(x)", 0, "no function 'near'"),
        ("(a exists", 9, "'and', 'or' or ')'"),
        ("a exists)", 8, "'and', 'or' or the end, found ')'"),
        ("a exists AND b exists", 9, "write 'and' in small letters"),
        ("a == 'x", 5, "no closing '"),
        (r"a == '\q'", 6, "after a backslash"),
        (r"a == '\u12'", 6, "4 hexadecimal digits"),
        (r"a == '\ud800'", 6, "4 hexadecimal digits"),
        ("a == '\\", 6, "after a backslash"),
        ("has(and)", 4, "expected an attribute's name"),
        ("and exists", 0, "expected a condition"),
        ("all(a exists", 12, "expected ',' or ')'"),
        ("(" * 100, DEPTH_MAX, "levels deep"),
        ("not " * 100_000 + "a exists", DEPTH_MAX * 4, "levels deep"),
        (" or ".join(["a exists"] * 300), None, "at most 256 terms"),
        ("all()" + " or all()" * 300, None, "at most 256 terms"),
        ("a in (" + ",".join(["1"] * 5_000) + ")", None, "at most 256 terms"),
        ("x" * 300 + " exists", 0, "at most 256 characters"),
        ("a" * (WHERE_CHARACTERS_MAX + 1), 0, "characters"),
        ("über exists", 0, "not part of the language"),
    ],
)
def test_errors_say_where_and_what(written: str, position: int | None, words: str) -> None:
    error = parse_constraint(written)
    assert isinstance(error, ConstraintSyntaxProblem)
    assert words in error.message
    assert position is None or error.position == position


def test_the_caret_stands_under_the_place() -> None:
    written = "a exists and\n" + "b exists and " * 10 + "zone = 'x' and " + "c exists and " * 10 + "d exists"
    error = parse_constraint(written)
    assert isinstance(error, ConstraintSyntaxProblem)
    _, shown, caret = error.message.split("\n")
    assert shown[caret.index("^")] == "=" == written[error.position]
    assert len(shown) < 80


@given(st.text(alphabet="ab01 .\"'\\()<>=!,-\nnotandorinexistshasall\u00e9\ud800", max_size=60) | st.text())
def test_garbage_never_raises_and_what_parses_is_sound(written: str) -> None:
    result = parse_constraint(written)
    if isinstance(result, ConstraintSyntaxProblem):
        assert 0 <= result.position <= len(written)
        assert result.message
    else:
        assert constraint_problem(result) is None
        assert parse_constraint(format_constraint(result)) == result
