"""Text of amounts and times for people."""

import time
from typing import Final

from hanse.api.records import Amounts
from hanse.api.row_records import JobRow
from hanse.model.resources import Resources

_SPANS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def cpus_text(milli: int) -> str:
    """Format milli-CPUs as CPUs."""
    return f"{milli / 1_000:g}"


def memory_text(count: int) -> str:
    """Format bytes in the largest unit that leaves a number above one."""
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1_024:
            return f"{amount:.3g} {unit}" if amount < 1_000 else f"{amount:.0f} {unit}"
        amount /= 1_024
    return f"{amount:.3g} {_UNITS[-1]}"


def cpus_free(free: Amounts, capacity: Amounts) -> str:
    """Format free CPUs and all CPUs."""
    return f"{cpus_text(free.cpu)}/{cpus_text(capacity.cpu)}"


def memory_free(free: Amounts, capacity: Amounts) -> str:
    """Format free memory and all memory."""
    return f"{memory_text(free.memory)}/{memory_text(capacity.memory)}"


def gpus_free(free: Amounts, capacity: Amounts) -> str:
    """Format free GPUs and all GPUs; empty where there are none."""
    return f"{free.gpu}/{capacity.gpu}" if capacity.gpu else ""


def ask_text(least: Resources, most: Resources | None) -> str:
    """Format the request of a task."""
    upper = most or least

    def range_text(low: str, high: str) -> str:
        return low if low == high else f"{low}..{high}"

    parts = [f"{range_text(cpus_text(least.cpu), cpus_text(upper.cpu))} CPU"]
    if upper.memory:
        parts.append(range_text(memory_text(least.memory), memory_text(upper.memory)))
    if upper.gpu:
        parts.append(f"{range_text(str(least.gpu), str(upper.gpu))} GPU")
    low = dict(least.custom)
    parts += [f"{range_text(str(low.get(name, 0)), str(amount))} {name}" for name, amount in upper.custom]
    return ", ".join(parts)


def span_text(seconds: float) -> str:
    """Format a length of time in its two largest units."""
    if seconds < 1:
        return f"{1_000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, small, small_unit in _SPANS:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def age_text(micro: int | None, now: float | None = None) -> str:
    """Format how long ago a moment was."""
    if micro is None:
        return "-"
    past = (time.time() if now is None else now) - micro / 1e6
    return f"{span_text(max(past, 0.0))} ago"


def time_text(micro: int | None) -> str:
    """Format a moment as local time."""
    if micro is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(micro / 1e6))


def elapsed_text(start: int | None, end: int | None) -> str:
    """Format the time from one moment to another, or until now."""
    if start is None:
        return "-"
    last = time.time() if end is None else end / 1e6
    return span_text(max(last - start / 1e6, 0.0))


def progress_text(row: JobRow) -> str:
    """Format the progress of a job: ``7/10``, with failures."""
    text = f"{row.succeeded + row.failed + row.cancelled}/{row.total}"
    return f"{text} ({row.failed} failed)" if row.failed else text


def count_text(count: int, word: str) -> str:
    """Format a count with its noun: ``1 task``, ``3 tasks``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
