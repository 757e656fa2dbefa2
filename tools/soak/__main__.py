"""``python -m tools.soak``: soak a real league on this machine, and say whether a promise was broken."""

import argparse
import signal
import sys
from pathlib import Path

import msgspec

from tools.soak.checker import story
from tools.soak.run import Options, Outcome, soak

STORIES_MAX = 5
STORY_LINES_MAX = 60
BESIDE_NANOSECONDS = 30 * 10**9
"""Faults so long before and after a story are told with it."""


def tell(outcome: Outcome) -> str:
    """What came out, for people: figures, then the story of each broken promise."""
    lines = [f"{name}: {value}" for name, value in outcome.figures.items()]
    for one in outcome.violations[:STORIES_MAX]:
        lines += ["", f"VIOLATION ({one.kind}): {one.sentence}"]
        told = story(outcome.history, one.subject)
        past = sum(float(line.split()[0]) * 1e9 <= one.at for line in told if line[0].isdigit())
        first = max(0, past - STORY_LINES_MAX // 2 if one.at else len(told) - STORY_LINES_MAX)
        told = told[first : first + STORY_LINES_MAX]
        lines += told
        times = [float(line.split()[0]) for line in told if line[0].isdigit()]
        if times:
            since, until = min(times) * 1e9 - BESIDE_NANOSECONDS, max(times) * 1e9 + BESIDE_NANOSECONDS
            near = [(at, text) for at, text in outcome.faults if since <= at <= until]
            lines += [f"{at / 1e9:.3f} fault {text}" for at, text in near[-STORY_LINES_MAX:]]
    if outcome.violations:
        seed = outcome.figures["seed"]
        lines += ["", f"{len(outcome.violations)} promises broken; the same choices again: --seed {seed}"]
    else:
        lines += ["", "0 lost, 0 overlapping, 0 over-committed, and every word true"]
    return "\n".join(lines)


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", type=Path, help="where figures, faults and violations are written")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that league and disk are cleaned up
    outcome = soak(Options(given.minutes * 60, given.seed, given.clients))
    print(tell(outcome))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        content = {**outcome.figures, "broken": outcome.violations, "log": outcome.faults}
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
