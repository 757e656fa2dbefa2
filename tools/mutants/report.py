"""What came of the planted bugs, for people and for programs."""

import json
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.table import Mutant
from tools.mutants.trial import Verdict

CAUGHT_MIN = 95
"""Per cent of the planted bugs that must be noticed."""


def share(mutants: Sequence[Mutant], verdicts: dict[str, Verdict]) -> float:
    """Per cent that were noticed, of those tried."""
    tried = [verdicts[mutant.name] for mutant in mutants if mutant.name in verdicts]
    return 100.0 * sum(bool(one.caught_by) for one in tried) / len(tried) if tried else 100.0


def text(mutants: Sequence[Mutant], verdicts: dict[str, Verdict]) -> str:
    """A table by room and module, then every survivor with what is wrong and why nobody noticed."""
    rows: dict[str, list[Verdict]] = {}
    for mutant in mutants:
        if mutant.name in verdicts:
            rows.setdefault(mutant.name.rpartition("/")[0], []).append(verdicts[mutant.name])
    width = max([len(row) for row in rows], default=0)
    lines = [f"{'':{width}}  planted  tests  chaos  survived"]
    for row, found in sorted(rows.items()):
        by_tests = sum("tests" in one.caught_by or "compiler" in one.caught_by for one in found)
        by_chaos = sum("chaos" in one.caught_by for one in found)
        survived = sum(not one.caught_by for one in found)
        lines.append(f"{row:{width}}  {len(found):7}  {by_tests:5}  {by_chaos:5}  {survived:8}")
    total = sum(len(found) for found in rows.values())
    lines.append(f"{total} of {len(mutants)} tried, {share(mutants, verdicts):.1f} % caught")
    for mutant in mutants:
        verdict = verdicts.get(mutant.name)
        if verdict is not None and not verdict.caught_by:
            why = mutant.survives or "not known: write a test, or say why in the table"
            lines.append(f"survived: {mutant.name} ({mutant.file}): {mutant.bug}\n  why: {why}")
        elif verdict is not None and mutant.survives:
            lines.append(f"caught after all: {mutant.name}; take `survives` out of the table")
    return "\n".join(lines) + "\n"


def write(path: Path, mutants: Sequence[Mutant], verdicts: dict[str, Verdict]) -> None:
    """The same as JSON."""
    entries = [
        {
            "name": mutant.name, "file": mutant.file, "bug": mutant.bug, "survives": mutant.survives,
            "caught_by": verdicts[mutant.name].caught_by, "seconds": verdicts[mutant.name].seconds,
            "said": verdicts[mutant.name].said,
        }
        for mutant in mutants
        if mutant.name in verdicts
    ]  # fmt: skip
    caught = round(share(mutants, verdicts), 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"caught_percent": caught, "mutants": entries}, indent=1) + "\n")
