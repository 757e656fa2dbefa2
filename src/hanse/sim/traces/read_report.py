"""Report of a reader: rows read, bad rows with reasons, rows left out by a rule. No row is dropped silently.

An unusable row never raises: real traces have such rows, and a day's replay must not fail at row nine
million. The row is counted under its reason, and the first few are kept with their line numbers.
"""

from typing import Final

import msgspec

BAD_ROWS_KEPT_MAX: Final = 20
"""Bad rows kept with line and reason; all are counted."""
REASONS_MAX: Final = 64
"""Different reasons that are counted separately; further ones count under ``OTHER_REASONS``."""
OTHER_REASONS: Final = "other reasons"
NOTES_MAX: Final = 64


class TraceError(Exception):
    """Error for a trace that cannot be read or written at all; the message says what to do next."""


class BadRow(msgspec.Struct, frozen=True):
    """One bad row."""

    line: int
    """Line number in the (decompressed) text, from 1; for Parquet the row number, from 1."""
    reason: str
    detail: str = ""


class ReadReport(msgspec.Struct):
    """Counts and notes of one reading; complete when the reader has ended."""

    rows: int = 0
    """Data rows seen, good or bad; comments, headers and blank lines do not count."""
    jobs: int = 0
    tasks: int = 0
    bad: int = 0
    reasons: dict[str, int] = {}
    """Bad rows by reason; all are counted."""
    first: list[BadRow] = []
    """The first ``BAD_ROWS_KEPT_MAX`` bad rows."""
    skipped: dict[str, int] = {}
    """Good rows that a rule left out, by rule."""
    disordered: int = 0
    """Entries that arrived before the entry above them; ``load`` sorts, a stream does not."""
    notes: list[str] = []
    """Further facts for the user: a truncated stream, an assumption."""

    def bad_row(self, line: int, reason: str, detail: str = "") -> None:
        """Count a bad row. ``reason`` is one of a few phrases, ``detail`` the text found."""
        self.bad += 1
        key = reason if reason in self.reasons or len(self.reasons) < REASONS_MAX else OTHER_REASONS
        self.reasons[key] = self.reasons.get(key, 0) + 1
        if len(self.first) < BAD_ROWS_KEPT_MAX:
            self.first.append(BadRow(line, reason, detail[:80]))

    def skip(self, rule: str, count: int = 1) -> None:
        """Count good rows that a rule leaves out."""
        if count:
            self.skipped[rule] = self.skipped.get(rule, 0) + count

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """Return the report as lines for a person; no line if there is nothing to report."""
        out = []
        if self.bad:
            out.append(f"{self.bad:,} of {self.rows:,} rows are bad and left out:")
            out += [f"  {count:,} x {reason}" for reason, count in sorted(self.reasons.items())]
            for row in self.first:
                detail = f": {row.detail}" if row.detail else ""
                out.append(f"  line {row.line:,}: {row.reason}{detail}")
            if self.bad > len(self.first):
                out.append(f"  ... and {self.bad - len(self.first):,} more")
        out += [f"{count:,} rows left out by rule: {rule}" for rule, count in sorted(self.skipped.items())]
        if self.disordered:
            out.append(f"{self.disordered:,} jobs are out of order: they follow one that arrived later")
        return out + self.notes

    def clear(self) -> None:
        """Reset the report."""
        fresh = ReadReport()
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))
