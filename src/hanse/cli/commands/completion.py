"""``hanse completion``: the script with which a shell completes commands, jobs and clusters."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script with which SHELL completes hanse's commands, jobs and clusters.

    \b
      bash  eval "$(hanse completion bash)"        in ~/.bashrc
      zsh   eval "$(hanse completion zsh)"         in ~/.zshrc
      fish  hanse completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415  only this needs it

    from hanse.cli.main import hanse  # noqa: PLC0415  the root imports its commands

    kind = get_completion_class(shell)
    assert kind is not None, f"click completes no {shell}"
    click.echo(kind(hanse, {}, "hanse", "_HANSE_COMPLETE").source())
