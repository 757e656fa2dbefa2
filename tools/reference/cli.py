"""The reference page of the command line, from the commands themselves."""

import inspect
from collections.abc import Iterator
from typing import Final

import click

from hanse.cli.main import OTHER_SECTION, SECTIONS, hanse
from hanse.client.exit_codes import ExitCode
from tools.reference.markdown import fence, paragraphs, table
from tools.reference.source import attribute_texts

START: Final = """\
hanse up                                        # a league on this machine
hanse submit -n 10 --cpus 0.5 --mem 128MiB -- sh -c 'echo task $HANSE_TASK'
hanse jobs
hanse why 1-0
hanse logs -f 1-0
hanse down
"""


def page() -> str:
    """The whole page."""
    root = hanse.make_context("hanse", [], resilient_parsing=True)
    listed = hanse.list_commands(root)
    named = [name for _, names in SECTIONS for name in names]
    rest = (OTHER_SECTION, tuple(name for name in listed if name not in named))
    parts: list[str] = []
    for title, names in (*SECTIONS, rest):
        parts.append(f"## {title}")
        for name in names:
            command = hanse.get_command(root, name)
            if name in listed and command is not None:
                parts += list(command_sections(command, name, root))
    return paragraphs(
        "# Command line",
        fence("sh", START),
        "Tables are for people; `--json` prints one JSON document for programs. Options that stand before "
        "the command:",
        _options(hanse, root),
        "## All commands",
        _overview(root),
        *parts,
        "## Exit codes",
        "Every command ends with one of these codes. A number never changes its meaning. `hanse wait` with "
        "several jobs ends as the first of them, in the order given, that did not succeed.",
        exit_codes(),
    )


def _overview(root: click.Context) -> str:
    """The table of all commands, each with the first sentence of its help."""
    rows = []
    for name in hanse.list_commands(root):
        command = hanse.get_command(root, name)
        if command is not None:
            rows.append((f"`hanse {name}`", _escaped(command.get_short_help_str(limit=200))))
    return table(("command", "what it does"), rows)


def command_sections(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """Usage, help and options of a command, then those of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent)
    path = context.command_path
    yield f"### {path}"
    yield fence("text", f"{path} {' '.join(command.collect_usage_pieces(context))}")
    yield _help(command)
    if not isinstance(command, click.Group):
        yield _options(command, context)
        return
    for below in command.list_commands(context):
        inner = command.get_command(context, below)
        if inner is not None and not inner.hidden:
            yield from command_sections(inner, below, context)


def exit_codes() -> str:
    """The table of all exit codes."""
    texts = attribute_texts(ExitCode)
    return table(
        ("code", "name", "meaning"),
        [(str(code.value), f"`{code.name}`", texts[code.name]) for code in ExitCode],
    )


def _options(command: click.Command, context: click.Context) -> str:
    """The options of a command that its help shows."""
    records = [
        record
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    return (
        table(("option", "meaning"), [(f"`{left}`", _escaped(right)) for left, right in records])
        if records
        else ""
    )


def _help(command: click.Command) -> str:
    """The help of a command; what is laid out by hand stays as it is."""
    parts = []
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b"):
            parts.append(fence("text", inspect.cleandoc(part.removeprefix("\b\n"))))
        else:
            parts.append(_escaped(" ".join(part.split())))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """A text whose stars and angle brackets are no Markdown."""
    for mark in "*<>":
        text = text.replace(mark, f"\\{mark}")
    return text
