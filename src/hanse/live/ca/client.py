"""Client of the CA process (``live.ca.process``): starts one for each request of a daemon."""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.live.child_stdin_file import open_child_stdin

CA_SECONDS_MAX: Final = 60.0
PROCESSES_MAX: Final = 2
"""CA processes at the same time; further requests wait."""

_slots: Final = asyncio.Semaphore(PROCESSES_MAX)


async def run_ca_process(verb: str, home: Path, arguments: dict[str, object]) -> dict[str, Any]:
    """Run a CA process and return its answer; ``OSError`` says why there is none."""
    async with _slots:
        with open_child_stdin(msgspec.json.encode(arguments)) as stdin:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hanse.live.ca.process", verb, str(home)),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        try:
            async with asyncio.timeout(CA_SECONDS_MAX):
                answer, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise OSError(f"no certificate within {CA_SECONDS_MAX:.0f} s") from None
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise OSError(lines[-1] if lines else f"the CA process ended with status {process.returncode}")
    result: dict[str, Any] = msgspec.json.decode(answer)
    return result
