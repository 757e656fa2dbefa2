"""What a reader did: rows read, rows that were no good and why, rows a rule left out. Nothing is dropped in
silence.

A row that cannot be used never raises: real traces have such rows, and a day's replay must not end at row
nine million. It is counted under its reason, and the first few are kept with their line numbers.
"""

from typing import Final

import msgspec

BAD_ROWS_KEPT_MAX: Final = 20
"""How many bad rows are kept with line and reason; all are counted."""
REASONS_MAX: Final = 64
"""How many different reasons are counted apart; further ones go under ``OTHER_REASONS``."""
OTHER_REASONS: Final = "other reasons"
NOTES_MAX: Final = 64


class TraceError(Exception):
    """A trace that cannot be read or written at all; the message says what to do next."""


class BadRow(msgspec.Struct, frozen=True):
    """One row that was no good."""

    line: int
    """Line number in the (decompressed) text, from 1; for Parquet the row number, from 1."""
    reason: str
    detail: str = ""


class ReadReport(msgspec.Struct):
    """The running account of one reading; complete when the reader has ended."""

    rows: int = 0
    """Rows of data seen, good or not; comments, headers and blank lines are none."""
    jobs: int = 0
    tasks: int = 0
    bad: int = 0
    reasons: dict[str, int] = {}
    """Bad rows by reason, counted in full."""
    first: list[BadRow] = []
    """The first ``BAD_ROWS_KEPT_MAX`` bad rows."""
    skipped: dict[str, int] = {}
    """Sound rows that a rule left out, by rule."""
    disordered: int = 0
    """Entries that arrived before the entry above them; ``load`` sorts, a stream does not."""
    notes: list[str] = []
    """What else a user must know: a stream cut short, an assumption made."""

    def bad_row(self, line: int, reason: str, detail: str = "") -> None:
        """Count a row that is no good. ``reason`` is one of few phrases, ``detail`` what was found."""
        self.bad += 1
        key = reason if reason in self.reasons or len(self.reasons) < REASONS_MAX else OTHER_REASONS
        self.reasons[key] = self.reasons.get(key, 0) + 1
        if len(self.first) < BAD_ROWS_KEPT_MAX:
            self.first.append(BadRow(line, reason, detail[:80]))

    def skip(self, rule: str, count: int = 1) -> None:
        """Count sound rows that a rule leaves out."""
        if count:
            self.skipped[rule] = self.skipped.get(rule, 0) + count

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """The report for a person, without a line when there is nothing to say."""
        out = []
        if self.bad:
            out.append(f"{self.bad:,} of {self.rows:,} rows were no good and are left out:")
            out += [f"  {count:,} x {reason}" for reason, count in sorted(self.reasons.items())]
            for row in self.first:
                detail = f": {row.detail}" if row.detail else ""
                out.append(f"  line {row.line:,}: {row.reason}{detail}")
            if self.bad > len(self.first):
                out.append(f"  ... and {self.bad - len(self.first):,} more")
        out += [f"{count:,} rows left out by rule: {rule}" for rule, count in sorted(self.skipped.items())]
        if self.disordered:
            out.append(f"{self.disordered:,} jobs stand after one that arrived later")
        return out + self.notes

    def clear(self) -> None:
        """Begin again."""
        fresh = ReadReport()
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))
