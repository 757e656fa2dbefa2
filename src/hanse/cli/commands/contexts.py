"""``hanse config``: contexts, which say what league the commands use and how they reach it."""

from pathlib import Path

import click
import msgspec

from hanse.cli.common_options import completions, json_option, print_json
from hanse.client import contexts
from hanse.client.access_token import AccessToken
from hanse.client.contexts import Context
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode


@click.group("config")
def config() -> None:
    """Show and choose the league that commands use."""


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
    name, context = contexts.current_context(contexts.requested_name())
    click.echo(f"context      {name}")
    click.echo(f"league       {context.league}")
    click.echo(f"home         {context.home or '(elsewhere)'}")
    click.echo(f"credentials  {context.credentials}")
    if context.token:
        click.echo(f"token        in {context.token}")
    for kind, members in (("broker", context.brokers), ("cluster", context.clusters)):
        for member, endpoint in members.items():
            click.echo(f"{kind:<12} {member}  {endpoint}")
    click.echo(f"file         {contexts.config_path()}")


@config.command("contexts")
@json_option
def list_contexts(as_json: bool) -> None:
    """List the contexts and mark the current one."""
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
@click.argument("name", shell_complete=lambda _ctx, _param, word: completions(contexts.load().contexts, word))
def use(name: str) -> None:
    """Use the league of the context NAME from now on."""
    contexts.use_context(name)
    click.echo(f"now using '{name}'")


@config.command("set")
@click.argument("name", shell_complete=lambda _ctx, _param, word: completions(contexts.load().contexts, word))
@click.option("--broker", "brokers", multiple=True, metavar="HOST:PORT", help="HTTP address of a broker.")
@click.option(
    "--ca", type=click.Path(path_type=Path, dir_okay=False),
    help="Certificate of the league's authority, 'ca.pem', to trust.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False),
    help="File with an access token, readable by you alone (mode 600): used instead of a certificate.",
)  # fmt: skip
@click.option("--no-token", is_flag=True, help="Use the context's certificate again.")
def set_context(
    name: str, brokers: tuple[str, ...], ca: Path | None, token_file: Path | None, no_token: bool
) -> None:
    """Create or change the context NAME, and choose it.

    \b
    A league elsewhere, for which you have an access token and no certificate:
      hanse config set far --broker HOST:PORT --ca ca.pem --token-file ci.token
    Another token, or none:
      hanse config set far --token-file other.token
      hanse config set near --no-token

    A token in $HANSE_TOKEN takes precedence over that of the context.
    """
    from hanse.client import context_builder  # noqa: PLC0415  only this contacts a league

    if no_token and token_file is not None:
        raise click.UsageError("--token-file and --no-token exclude each other")
    file = token_file.absolute() if token_file is not None else None
    known = contexts.load().contexts.get(name)
    if known is None or brokers or ca is not None:
        if not brokers or ca is None or file is None:
            raise click.UsageError("a new context needs --broker, --ca and --token-file")
        authority = context_builder.read_authority(ca)
        league = context_builder.fetch_league(brokers, authority, AccessToken(f"in {file}", path=file))
        context = context_builder.build_context(league, context_builder.save_authority(name, authority), file)
    else:
        context = _with_token(name, known, file, no_token)
    contexts.save_context(name, context, make_current=True)
    shown = f"with the token in {context.token}" if context.token else "with a certificate"
    click.echo(f"now using '{name}', the league '{context.league}', {shown}")


def _with_token(name: str, known: Context, file: Path | None, no_token: bool) -> Context:
    """Return the context with another token, or none."""
    from hanse.security.credentials import IDENTITY_FILE  # noqa: PLC0415  only this needs it

    if no_token:
        if not (Path(known.credentials) / IDENTITY_FILE).is_file():
            raise CommandError(
                f"'{name}' has no certificate to use instead of the token",
                ExitCode.CONFIG,
                "give it another token with --token-file, or join the league with 'hanse join'",
            )
        return msgspec.structs.replace(known, token="")
    if file is None:
        raise click.UsageError(
            "nothing to set. Give --token-file FILE, --no-token, or --broker, --ca and a token"
        )
    AccessToken(f"in {file}", path=file).text()  # refuse a bad token now, not at the next command
    return msgspec.structs.replace(known, token=str(file))
