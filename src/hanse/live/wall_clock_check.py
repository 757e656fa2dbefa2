"""Check of the machine's wall clock, because peers judge certificates by theirs.

No machine's decision depends on the wall clock. But a member with a wrong clock refuses the others'
certificates, and they refuse its own: the log should say why.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from hanse.model.ids import SECOND
from hanse.security.certificate_parser import Certificate
from hanse.security.wall_time import wall_now

CHECK_SECONDS: Final = 30.0
"""Seconds between two checks."""
CLOCK_STEP_MAX: Final = 60 * SECOND
"""Step of the clock, in microseconds, up to which nothing is logged."""
log: Final = logging.getLogger(__name__)


def boottime_now() -> int:
    """Return microseconds of a clock that nobody sets, and that runs while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000


class WallClockCheck:
    """Check whether the wall clock was set, or contradicts the member's own certificate."""

    def __init__(
        self,
        certificate: Callable[[], Certificate],
        wall: Callable[[], int] = wall_now,
        steady: Callable[[], int] = boottime_now,
    ) -> None:
        self._read, self._wall, self._steady = certificate, wall, steady
        self._certificate = certificate()
        self._offset = wall() - steady()
        self._last_problem = ""

    def check(self) -> list[str]:
        """Return new findings as sentences, each once."""
        sentences = []
        wall = self._wall()
        offset = wall - self._steady()
        step, self._offset = offset - self._offset, offset
        if abs(step) > CLOCK_STEP_MAX:
            way = "forward" if step > 0 else "back"
            sentences.append(f"the clock of this machine was set {way} by {abs(step) // SECOND} s")
        problem = _certificate_problem(self._certificate, wall)
        if problem:
            self._certificate = self._read()  # it may have been renewed
            problem = _certificate_problem(self._certificate, wall)
        if problem and problem != self._last_problem:
            sentences.append(problem)
        self._last_problem = problem
        return sentences

    async def run(self) -> None:
        """Check for as long as the daemon lives."""
        while True:
            for sentence in self.check():
                log.warning("%s", sentence)
            await asyncio.sleep(CHECK_SECONDS)


def _certificate_problem(certificate: Certificate, wall: int) -> str:
    if wall < certificate.not_before:
        return (
            "by the clock of this machine the certificate of this member is not valid yet, so the clock is "
            "behind. Set it: until then this member refuses the others"
        )
    if wall > certificate.not_after:
        return (
            "by the clock of this machine the certificate of this member has expired: set the clock if it is "
            "wrong, or renew the certificate with 'hanse renew'"
        )
    return ""
