"""The settings of a Slurm cluster in the league file, read and written."""

from collections.abc import Callable
from typing import Final

from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.model.fields import Fields, text
from hanse.model.problem import Problem, given
from hanse.model.quantities import parse_duration, parse_whole

SLURM_FIELDS: Final = SlurmSettings.__struct_fields__
DRIVERS: Final = ("cli", "rest")
POLL_MIN: Final = 100_000
"""Microseconds; a controller has other things to do than to answer us."""
_DURATIONS: Final = ("poll", "time_limit", "begin_max")


def slurm_settings(fields: Fields) -> SlurmSettings:
    """What a cluster's ``backend`` says of Slurm."""
    usual = SlurmSettings()
    words = {
        name: fields.take(name, text, getattr(usual, name))
        for name in ("conf", "url", "token_file", "token_user", "api", "partition", "account")
    }
    settings = SlurmSettings(
        driver=fields.take("driver", _driver, usual.driver),
        shared_dir=fields.take("shared_dir", _absolute("shared_dir"), usual.shared_dir),
        poll=fields.take("poll", _poll, usual.poll),
        time_limit=fields.take("time_limit", parse_duration, usual.time_limit),
        begin_max=fields.take("begin_max", parse_duration, usual.begin_max),
        array_max=fields.take("array_max", parse_whole, usual.array_max),
        **words,
    )
    if settings.driver == "rest" and not settings.url:
        fields.problems.add(fields.path("url"), "the driver 'rest' needs the address of a slurmrestd")
    return settings


def slurm_to_data(settings: SlurmSettings) -> dict[str, object]:
    """The settings that are not as usual, as the file has them."""
    usual = SlurmSettings()
    changed = {
        name: getattr(settings, name)
        for name in SLURM_FIELDS
        if getattr(settings, name) != getattr(usual, name)
    }
    return {name: f"{value}us" if name in _DURATIONS else value for name, value in changed.items()}


def _driver(value: object, field: str) -> str | Problem:
    if isinstance(value, str) and value in DRIVERS:
        return value
    return Problem(field, f"this is one of {', '.join(DRIVERS)}, not {given(value)}")


def _poll(value: object, field: str) -> int | Problem:
    poll = parse_duration(value, field)
    if isinstance(poll, int) and poll < POLL_MIN:
        return Problem(field, "Slurm is looked at every 100 ms at most")
    return poll


def _absolute(what: str) -> Callable[[object, str], str | Problem]:
    def read(value: object, field: str) -> str | Problem:
        if isinstance(value, str) and value.startswith("/"):
            return value
        return Problem(field, f"{what} is an absolute path, the same on every node, not {given(value)}")

    return read
