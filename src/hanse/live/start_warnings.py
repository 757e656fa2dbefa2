"""What a member that comes back from disk tells at level warning, because somebody should look at it.

None of it keeps a member from starting: each has an innocent explanation too.
"""

from pathlib import Path

from hanse.live.config.config_history import ERAS
from hanse.live.wall_clock_check import APART_MAX
from hanse.model.ids import SECOND


def start_warnings(directory: Path, position: int, cut: int, last_write: int, wall: int) -> list[str]:
    """Sentences about what was found in a member's directory.

    ``position`` is the last record of its journal, ``cut`` the bytes of a torn tail, ``last_write`` when the
    journal was last written and ``wall`` what the clock shows, both in microseconds since 1970.
    """
    found = []
    if position and not (directory / ERAS).exists():
        found.append(
            f"{directory / ERAS} is gone, which told under which settings the journal was written: it is "
            "read under those of today. If the league file was changed since then, restore that file"
        )
    if cut:
        found.append(
            f"{cut} bytes at the end of the journal were not completely written and are cut off. After a "
            "power cut that is as it should be, and nothing that was acknowledged is gone; at any other time "
            "have the disk checked"
        )
    if last_write - wall > APART_MAX:
        found.append(
            f"the journal was last written {(last_write - wall) // SECOND} s later than it is now by the "
            "clock of this machine: set the clock"
        )
    return found
