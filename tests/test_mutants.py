"""The table of planted bugs fits the code: every one can be planted, and names the tests that must notice it.

Whether they do is for ``make mutants`` to say, which takes long.
"""

import pytest
from tools.mutants.report import share, text
from tools.mutants.table import ROOT, Mutant, load, mutated, problems
from tools.mutants.trial import Verdict

MUTANTS = load()
COUNT_MIN = 100


def test_every_planted_bug_can_still_be_planted() -> None:
    assert problems(MUTANTS) == []


def test_there_are_many_in_every_room() -> None:
    assert len(MUTANTS) >= COUNT_MIN
    rooms = {mutant.name.split("/")[0] for mutant in MUTANTS}
    assert rooms == {"core", "policy", "live", "security"}


def test_a_text_that_is_gone_or_there_twice_is_told() -> None:
    gone = Mutant("core/x", "src/hanse/core/messaging/link.py", "no such text", "", "a bug", ("tests/core",))
    twice = Mutant("core/y", "src/hanse/core/messaging/link.py", "link", "", "a bug", ("tests/core",))
    found = problems([gone, twice])
    assert len(found) == 2
    assert "0 times and not once" in found[0]
    assert "times and not once" in found[1]


def test_a_bug_that_is_no_python_is_told() -> None:
    broken = Mutant(
        "core/z",
        "src/hanse/core/messaging/link.py",
        "NEVER: Final = 1 << 62",
        "NEVER = (",
        "a bug",
        ("tests",),
    )
    with pytest.raises(ValueError, match="is not Python"):
        mutated(broken)


def test_only_some_are_chosen_by_the_beginning_of_their_names() -> None:
    some = load("core/broker/failover/standby")
    assert 0 < len(some) < len(MUTANTS)
    assert all(mutant.name.startswith("core/broker/failover/standby/") for mutant in some)


def test_the_report_lists_survivors_with_the_reason() -> None:
    first, second, third = MUTANTS[:3]
    verdicts = {
        first.name: Verdict(first.name, "tests", 1.0, "", ""),
        second.name: Verdict(second.name, "", 1.0, "", ""),
    }
    said = text([first, second, third], verdicts)
    assert "2 of 3 tried, 50.0 % caught" in said
    assert f"survived: {second.name}" in said
    assert second.bug in said
    assert share([first, second, third], verdicts) == 50.0
    assert str(ROOT) not in said
