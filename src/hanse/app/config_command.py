"""``hanse config`` and ``hanse completion``: which league commands speak to, and help for the shell."""

import click

from hanse.app import contexts
from hanse.app.league_options import json_option, offered, print_json


@click.group("config")
def config() -> None:
    """Show and choose the league that commands speak to."""


@config.command("view")
@json_option
def view(as_json: bool) -> None:
    """Show the current context: the league, where it is, and with which certificate."""
    if as_json:
        known = contexts.load()
        print_json(
            {"file": str(contexts.config_path()), "current": known.current, "contexts": known.contexts}
        )
        return
    name, context = contexts.current(contexts.chosen_name())
    click.echo(f"context      {name}")
    click.echo(f"league       {context.league}")
    click.echo(f"home         {context.home or '(elsewhere)'}")
    click.echo(f"credentials  {context.credentials}")
    for kind, members in (("broker", context.brokers), ("cluster", context.clusters)):
        for member, door in members.items():
            click.echo(f"{kind:<12} {member}  {door}")
    click.echo(f"file         {contexts.config_path()}")


@config.command("contexts")
@json_option
def list_contexts(as_json: bool) -> None:
    """List the contexts; the current one is marked."""
    known = contexts.load()
    if as_json:
        print_json({"current": known.current, "contexts": list(known.contexts)})
        return
    for name, context in known.contexts.items():
        place = f" in {context.home}" if context.home else ""
        click.echo(f"{'*' if name == known.current else ' '} {name}  league {context.league}{place}")
    if not known.contexts:
        click.echo("no contexts; 'hanse up' and 'hanse join' make them")


@config.command("use")
@click.argument("name", shell_complete=lambda _ctx, _param, word: offered(contexts.load().contexts, word))
def use(name: str) -> None:
    """Speak to the league of the context NAME from now on."""
    contexts.use_context(name)
    click.echo(f"now speaking to '{name}'")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that teaches SHELL to complete hanse's commands, jobs and clusters.

    \b
      bash  eval "$(hanse completion bash)"        in ~/.bashrc
      zsh   eval "$(hanse completion zsh)"         in ~/.zshrc
      fish  hanse completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415  only this needs it

    from hanse.app.cli import hanse  # noqa: PLC0415  the root imports its commands, not the other way round

    kind = get_completion_class(shell)
    assert kind is not None, f"click completes no {shell}"
    click.echo(kind(hanse, {}, "hanse", "_HANSE_COMPLETE").source())
