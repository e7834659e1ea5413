"""`pairbus completion`: the script by which a shell completes command lines."""

import click
from click.shell_completion import get_completion_class

from .group import examples

# Where click looks for the question that the script asks.
_VARIABLE = "_PAIRBUS_COMPLETE"


@examples(
    'eval "$(pairbus completion bash)"',
    "pairbus completion bash > ~/.local/share/bash-completion/completions/pairbus",
    "pairbus completion zsh > ~/.zfunc/_pairbus",
    "pairbus completion fish > ~/.config/fish/completions/pairbus.fish",
)
@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Besides commands and options it completes the pairs and entities of pairbus.toml, variables that hold
    connection strings, fault kinds, and the namespaces of a running broker.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # the choices are those that click has
    click.echo(kind(ctx.find_root().command, {}, "pairbus", _VARIABLE).source())
