"""Job of an executor's workers: its form, its environment, and where its workers find the executor."""

import os
import socket
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import hanse
from hanse.client.contexts import Context
from hanse.client.transport import host_and_port
from hanse.sdk.errors import SdkError
from hanse.sdk.workers.executor_connection import ADDRESS_VARIABLE, PIN_VARIABLE
from hanse.sdk.workers.worker_connection import ConnectionSettings

BACKLOG: Final = 1_024
"""Connections of workers that may wait to be accepted."""
RESOURCE_FIELDS: Final = ("cpus", "memory", "gpus", "resources", "where", "affinity", "duration")
"""Keys of ``resources``; the fields of a group in a job file."""


def own_address(context: Context) -> str:
    """Return this machine's address on its route to a broker."""
    for address in context.brokers.values():
        host, port = host_and_port(address)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family[0], socket.SOCK_DGRAM) as probe:
                probe.connect(family[4])  # a datagram socket only chooses an address; it sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            continue
    raise SdkError("no route to any broker of the league. Set 'listen' to this machine's address.")


def create_listener(host: str) -> socket.socket:
    """Listen at an address, at any port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=BACKLOG)


def worker_environment(
    listener: socket.socket, settings: ConnectionSettings, python: str | None
) -> dict[str, str]:
    """Return the variables by which workers find their executor, and this package."""
    host, port = listener.getsockname()[:2]
    environment = {
        ADDRESS_VARIABLE: f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        PIN_VARIABLE: settings.fingerprint.hex(),
        "PYTHONUNBUFFERED": "1",  # output of a call must not be lost in a crash
    }
    root = str(Path(hanse.__file__).resolve().parent.parent)
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if python is None and root not in installed:
        environment["PYTHONPATH"] = root
    return environment


def string_values(value: object) -> dict[str, str]:
    """Return a mapping of anything as one of strings; empty if it is none."""
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}


def worker_job_form(
    resources: dict[str, object], job: dict[str, object], name: str, python: str | None
) -> dict[str, object]:
    """Return the workers' job in the form of job files."""
    unknown = [field for field in resources if field not in RESOURCE_FIELDS]
    if unknown:
        raise ValueError(f"resources may have {', '.join(RESOURCE_FIELDS)}, not {', '.join(unknown)}")
    tenant = os.environ.get("HANSE_TENANT")
    if tenant:
        job.setdefault("tenant", tenant)
    form = {"name": name, "grace": "1s", **job, **resources}
    return {
        **form,
        "command": [python or sys.executable, *_interpreter_flags(form), "-m", "hanse.sdk.workers.worker"],
    }


def _interpreter_flags(form: dict[str, object]) -> list[str]:
    """Return options that keep a worker from importing out of its fresh working directory, which is its home:
    the user has put nothing there, and another task of the same user could. A directory that the job names is
    used as it is."""
    if form.get("workdir"):
        return []
    return ["-P"] if "HOME" in string_values(form.get("env")) else ["-P", "-s"]
