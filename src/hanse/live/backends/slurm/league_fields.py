"""The settings of a Slurm cluster in the league file: their table, reading and writing."""

from collections.abc import Callable
from typing import Final

from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.model.field_descriptions import FileField, names_of
from hanse.model.field_reader import FieldReader, read_text
from hanse.model.problem import Problem, describe_value
from hanse.model.quantities import parse_duration, parse_whole

DRIVERS: Final = ("cli", "rest")
POLL_MIN: Final = 100_000
"""Microseconds; shorter intervals would burden the controller."""
SLURM_TABLE: Final = (
    FileField(
        "driver", "`cli` or `rest`", "cli", "",
        "How Slurm is reached: by its commands (`sbatch`, `squeue` and others), or by slurmrestd.",
        "driver: rest\nurl: unix:/run/slurmrestd.sock",
    ),
    FileField(
        "conf", "text", "", "", "The cluster's `slurm.conf`, for the commands. Left out: where Slurm "
        "looks for it.",
        "conf: /etc/slurm/slurm.conf",
    ),
    FileField(
        "url", "text", "", "required with the driver `rest`",
        "Where slurmrestd listens: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`.",
        "url: http://slurm.example.org:6820",
    ),
    FileField(
        "token_file", "text", "", "",
        "A file with the token for slurmrestd, read before every request, so that it can be renewed.",
        "token_file: /etc/hanse/slurm.token",
    ),
    FileField(
        "token_user", "text", "", "", "The user of the token. Left out: the user that runs the jobs.",
        "token_user: hanse",
    ),
    FileField(
        "api", "text", "", "",
        "The version of the interface of slurmrestd. Left out: the newest that both sides know.", "api: "
        "v0.0.38",
    ),
    FileField(
        "partition", "text", "", "",
        "The partition of all jobs; only its nodes are used. Left out: Slurm's default partition, and all "
        "nodes.",
        "partition: batch",
    ),
    FileField("account", "text", "", "", "The Slurm account that jobs are charged to.", "account: physics"),
    FileField(
        "shared_dir", "text", "", "an absolute path, the same on every node",
        "A directory that the warden and all nodes see. Left out: the runner's own directory, which works "
        "only "
        "where the nodes are this machine.",
        "shared_dir: /shared/hanse",
    ),
    FileField(
        "poll", "time", "1s", "at least 100ms", "Time between two queries of Slurm while tasks are there.",
        "poll: 2s",
    ),
    FileField(
        "time_limit", "time", "0", "",
        "Time after which Slurm ends a job; 0: the limit of the partition.", "time_limit: 4h",
    ),
    FileField(
        "begin_max", "time", "60s", "longer than the slowest prolog of the cluster",
        "A start is given back if Slurm says that it runs and it has not begun by then, or if it waits "
        "that long "
        "for a closed node or for what a partition, an account or a QOS does not allow.",
        "begin_max: 2m",
    ),
    FileField(
        "array_max", "whole number", "200", "below `MaxArraySize` of the cluster",
        "Tasks in one job array; 1: no arrays.", "array_max: 1000",
    ),
)  # fmt: skip
"""Fields of a backend of the kind ``slurm``, beside those of every backend."""
SLURM_FIELDS: Final = names_of(SLURM_TABLE)
_DURATIONS: Final = ("poll", "time_limit", "begin_max")


def read_slurm_settings(fields: FieldReader) -> SlurmSettings:
    """Read the Slurm settings of a cluster's ``backend``."""
    defaults = SlurmSettings()
    texts = {
        name: fields.read(name, read_text, getattr(defaults, name))
        for name in ("conf", "url", "token_file", "token_user", "api", "partition", "account")
    }
    settings = SlurmSettings(
        driver=fields.read("driver", _read_driver, defaults.driver),
        shared_dir=fields.read("shared_dir", _absolute_path_reader("shared_dir"), defaults.shared_dir),
        poll=fields.read("poll", _read_poll, defaults.poll),
        time_limit=fields.read("time_limit", parse_duration, defaults.time_limit),
        begin_max=fields.read("begin_max", parse_duration, defaults.begin_max),
        array_max=fields.read("array_max", parse_whole, defaults.array_max),
        **texts,
    )
    if settings.driver == "rest" and not settings.url:
        fields.problems.add(fields.path_of("url"), "the driver 'rest' needs the address of a slurmrestd")
    return settings


def slurm_to_data(settings: SlurmSettings) -> dict[str, object]:
    """Return the settings that differ from the defaults, in the form of the file."""
    defaults = SlurmSettings()
    changed = {
        name: getattr(settings, name)
        for name in SLURM_FIELDS
        if getattr(settings, name) != getattr(defaults, name)
    }
    return {name: f"{value}us" if name in _DURATIONS else value for name, value in changed.items()}


def _read_driver(value: object, field: str) -> str | Problem:
    if isinstance(value, str) and value in DRIVERS:
        return value
    return Problem(field, f"this is one of {', '.join(DRIVERS)}, not {describe_value(value)}")


def _read_poll(value: object, field: str) -> int | Problem:
    poll = parse_duration(value, field)
    if isinstance(poll, int) and poll < POLL_MIN:
        return Problem(field, "the time between two polls of Slurm is at least 100 ms")
    return poll


def _absolute_path_reader(what: str) -> Callable[[object, str], str | Problem]:
    def read(value: object, field: str) -> str | Problem:
        if isinstance(value, str) and value.startswith("/"):
            return value
        return Problem(
            field, f"{what} is an absolute path, the same on every node, not {describe_value(value)}"
        )

    return read
