"""``hanse tour``: a real league on this machine, created and removed in half a minute.

The tour runs the commands of a new user: start a league, submit jobs, ask why, read the output, kill a
broker, and go on. Everything lives in its own directory, which is removed at the end.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from hanse.client.access_token import TOKEN_VARIABLE
from hanse.client.exit_codes import ExitCode

STEP_SECONDS_MAX: Final = 120.0

PIPELINE: Final = """\
name: pipeline
retries: 1
groups:
  - name: fetch
    command: sleep 0.3; echo fetched in $HANSE_CLUSTER
  - name: compute
    count: 4
    needs: [fetch]
    memory: 64MiB
    command: echo part $HANSE_TASK computed on node $HANSE_NODE of $HANSE_CLUSTER
  - name: publish
    needs: [compute]
    where: zone == "a"
    command: echo published
"""


@click.command()
@click.option("--keep", is_flag=True, help="Leave the league running, and print how to use it.")
def tour(keep: bool) -> None:
    """Watch a real league place, run and explain jobs on this machine."""
    directory = Path(tempfile.mkdtemp(prefix="hanse-tour-"))
    directory.chmod(0o755)  # tasks run as another user
    runner = _TourRunner(directory)
    try:
        runner.run_tour()
    finally:
        if not keep:
            runner.clean_up()
    if keep:
        click.echo("\nThe league is still up. Use it from this shell with:")
        click.echo(f"  export HANSE_CONFIG={runner.config} HANSE_HOME={runner.home}")


class _TourRunner:
    """Runner of the tour's commands; it shows each command before its output."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.config = directory / "config.json"

    def run_tour(self) -> None:
        """Run the whole tour."""
        self.print_heading("A league of two brokers and three clusters, each member a separate process:")
        self.run_command("up", "--home", str(self.home))
        self.run_command("status")
        self.print_heading(
            "Jobs: a command three times, then a job file with three groups that need each other."
        )
        self.run_command("submit", "--name", "hello", "-n", "3", "--wait", "--", "sh", "-c",
                 "echo hello from node $HANSE_NODE of $HANSE_CLUSTER")  # fmt: skip
        self.run_command("logs", "1-0")
        file = self.directory / "pipeline.yaml"
        file.write_text(PIPELINE, encoding="utf-8")
        self.run_command("plan", str(file), allowed=(0, 1))
        self.run_command("submit", "--wait", str(file))
        self.run_command("show", "1-1")
        self.print_heading("More tasks than the clusters hold: they wait, and 'hanse why' explains it.")
        self.run_command("submit", "--name", "crowd", "-n", "20", "--", "sleep", "2")
        self.run_command("why", "1-2")
        self.print_heading(
            "Now the broker that accepted it is killed. Its standby takes over; nothing is lost."
        )
        self._kill_member("broker-1")
        self.run_command("wait", "1-2")
        self.run_command("jobs")

    def clean_up(self) -> None:
        """Stop the league and remove all of it."""
        self.run_command("down", "--home", str(self.home), "--delete")
        self.config.unlink(missing_ok=True)
        for path in self.directory.iterdir():
            path.unlink()
        self.directory.rmdir()

    def print_heading(self, text: str) -> None:
        """Print a heading."""
        click.echo()
        click.secho(f"# {text}", bold=True)

    def run_command(self, *words: str, allowed: tuple[int, ...] = (0,)) -> None:
        """Run a command as a user would."""
        click.echo()
        click.secho(f"$ hanse {shlex.join(words)}", fg="cyan")
        sys.stdout.flush()
        environment = {**os.environ, "HANSE_CONFIG": str(self.config), "HANSE_HOME": str(self.home)}
        environment.pop(TOKEN_VARIABLE, None)  # it belongs to another league
        done = subprocess.run(  # noqa: S603  our own program
            [sys.executable, "-m", "hanse", *words], env=environment, check=False, timeout=STEP_SECONDS_MAX
        )
        if done.returncode not in allowed:
            click.echo(
                f"hanse: the tour ends here: that command ended with status {done.returncode}", err=True
            )
            raise SystemExit(ExitCode.FAILED)

    def _kill_member(self, name: str) -> None:
        from hanse.cli.embedded.running_members import kill_member  # noqa: PLC0415  only here
        from hanse.security.home import Home  # noqa: PLC0415  as above

        click.echo()
        click.secho(f"$ kill -9 {name}", fg="cyan")
        kill_member(Home(self.home), name)
