"""``python -m tools.mutants``: try the planted bugs, and go on where an earlier run has stopped."""

import argparse
import queue
import sys
import threading
from pathlib import Path

import msgspec

from tools.mutants import report
from tools.mutants.table import ROOT, Mutant, load, problems
from tools.mutants.trial import Bench, Verdict, digest_of

BUILD = ROOT / "build" / "mutants"


class Run:
    """One run over some planted bugs. Verdicts are kept as they come, one line each."""

    def __init__(self, mutants: list[Mutant], kept: Path, seconds_max: float, seeds: int) -> None:
        self.kept = kept
        self.seconds_max, self.seeds = seconds_max, seeds
        self.verdicts = _verdicts(kept, mutants)
        self.waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in mutants:
            if mutant.name not in self.verdicts:
                self.waiting.put(mutant)
        self.left = self.waiting.qsize()
        self.failures: list[str] = []
        self._sound: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def work(self, number: int) -> None:
        """Try what waits, until nothing does or something is wrong with the trial itself."""
        try:
            bench = Bench(BUILD / f"copy-{number}", self.seconds_max, self.seeds)
            while not self.failures:
                self._try(bench, self.waiting.get_nowait())
        except queue.Empty:
            return
        except (RuntimeError, ValueError, OSError) as error:
            self.failures.append(str(error))

    def _try(self, bench: Bench, mutant: Mutant) -> None:
        if mutant.tests not in self._sound:
            self._sound[mutant.tests] = bench.baseline(mutant.tests)
        if self._sound[mutant.tests]:
            self.failures.append(self._sound[mutant.tests])
            return
        verdict = bench.try_one(mutant)
        with self._lock:
            self.verdicts[mutant.name] = verdict
            self.left -= 1
            with self.kept.open("ab") as file:
                file.write(msgspec.json.encode(verdict) + b"\n")
            noticed = verdict.caught_by or "SURVIVED"
            print(f"{mutant.name}: {noticed}, {verdict.seconds:.0f} s, {self.left} left", flush=True)


def _verdicts(kept: Path, mutants: list[Mutant]) -> dict[str, Verdict]:
    """What is known of these as they are now."""
    known: dict[str, Verdict] = {}
    if kept.exists():
        for line in kept.read_bytes().splitlines():
            verdict = msgspec.json.decode(line, type=Verdict)
            known[verdict.name] = verdict
    return {
        mutant.name: known[mutant.name]
        for mutant in mutants
        if mutant.name in known and known[mutant.name].digest == digest_of(mutant)
    }


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="tools.mutants", description=__doc__)
    parser.add_argument(
        "--only", default="", help="only those whose names begin so: core/broker/failover/standby"
    )
    parser.add_argument("--seeds", type=int, default=60, help="seeds of chaos after the tests; 0: none")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long tests or chaos may take")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--again", action="store_true", help="forget the verdicts of earlier runs")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "mutants.json")
    options = parser.parse_args()
    mutants = load(options.only)
    wrong = problems(mutants) if mutants else [f"no planted bug has a name that begins with {options.only}"]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / "verdicts.jsonl"
    if options.again:
        kept.unlink(missing_ok=True)
    run = Run(mutants, kept, options.seconds, options.seeds)
    workers = [threading.Thread(target=run.work, args=(number,)) for number in range(options.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(report.text(mutants, run.verdicts), end="")
    report.write(options.json, mutants, run.verdicts)
    if run.failures:
        print("\n".join(run.failures), file=sys.stderr)
        return 2
    return 0 if report.share(mutants, run.verdicts) >= report.CAUGHT_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
