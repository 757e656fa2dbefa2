"""Warnings at the start of a member about the state of its directory.

None of them keeps a member from starting: each has a harmless explanation too.
"""

from pathlib import Path

from hanse.live.config.config_history import CONFIG_HISTORY_FILE
from hanse.live.wall_clock_check import CLOCK_STEP_MAX
from hanse.model.ids import SECOND


def find_start_warnings(
    directory: Path, position: int, cut_bytes: int, last_write: int, wall: int
) -> list[str]:
    """Return sentences about the state of a member's directory.

    ``position`` is the last record of its journal, ``cut_bytes`` the size of a torn tail, ``last_write`` the
    time of the journal's last write and ``wall`` the time of the clock, both in microseconds since 1970.
    """
    sentences = []
    if position and not (directory / CONFIG_HISTORY_FILE).exists():
        sentences.append(
            f"{directory / CONFIG_HISTORY_FILE} is missing: the journal is read under the present "
            f"settings, not under those "
            "that it was written under. If the league file was changed since then, restore that file"
        )
    if cut_bytes:
        sentences.append(
            f"{cut_bytes} bytes at the end of the journal were not completely written and are cut off. After "
            "a power cut that is normal, and no acknowledged record is lost. At any other time check the disk"
        )
    if last_write - wall > CLOCK_STEP_MAX:
        sentences.append(
            f"the journal was last written {(last_write - wall) // SECOND} s later than the present "
            "time of this machine's clock: set the clock"
        )
    return sentences
