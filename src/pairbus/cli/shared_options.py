"""Options that several commands take."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pairbus.errors import ConfigurationError

from .candidates import offer_entities, offer_variables
from .numbers import AT_LEAST_ONE, INTERVAL
from .places import DIRECTORY, PLACE
from .suggestions import completing_errors

_F = TypeVar("_F", bound=Callable[..., Any])
Offer = Callable[[click.Context, click.Parameter, str], list[str]]


def together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Options in one, in the order in which the help has them."""

    def add(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def gathered(kind: type[Any], *options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Options that a command gets as one `choice`, a data class; errors suggest commands with the same."""

    def add(command: _F) -> _F:
        @functools.wraps(command)
        def call(*arguments: Any, **given: Any) -> Any:
            choice = kind(**{name: given.pop(name) for name in kind.__dataclass_fields__})
            with completing_errors():
                return command(*arguments, choice=choice, **given)

        decorated: _F = together(*options)(call)
        return decorated

    return add


def variable_option(name: str, text: str) -> Callable[[_F], _F]:
    """The name of a variable with a connection string."""
    return click.option(name, metavar="NAME", shell_complete=offer_variables, help=text)


count_option = click.option(
    "--count", type=AT_LEAST_ONE, help="How many backlog queues, above backlog_queue_count."
)
state_option = click.option(
    "--state", type=DIRECTORY, help="The state directory. [default: that of the pair]"
)
job_state_option = click.option(
    "--state", type=DIRECTORY, help="The state directory. [default: that of the pair, or of all pairs]"
)
all_pairs_option = click.option(
    "--all-pairs", is_flag=True, help="Every pair of the configuration file, in one job."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
master_option = click.option(
    "--master", metavar="URL", help="Where Spark runs. [default: local[8,4], this machine]"
)


def confirm(question: str) -> None:
    """Ask; whoever cannot be asked has to say --yes."""
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort as abort:
        click.echo(err=True)  # the question has no end of its own
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise
        raise ConfigurationError(
            "nobody is there to be asked: say --yes to do it without a question"
        ) from None
    raise ConfigurationError("nothing was done")


def extra_option(act: str) -> Callable[[_F], _F]:
    """Whether backlog queues beyond the count take part; `act` is what is done with them."""
    return click.option("--include-extra", is_flag=True, help=f"{act} backlog queues beyond the count too.")


def repeatable(
    name: str, target: str, metavar: str, text: str, *, default: str = "", offer: Offer | None = None
) -> Callable[[_F], _F]:
    """An option that may be given several times."""
    told = f"{text} Repeatable.{f' [default: {default}]' if default else ''}"
    return click.option(name, target, multiple=True, metavar=metavar, shell_complete=offer, help=told)


def entities_option(name: str, target: str, text: str) -> Callable[[_F], _F]:
    """Queues and topics of the primary."""
    return repeatable(name, target, "PATH", text, offer=offer_entities)


def only_one(context: click.Context, option: click.Parameter, given: tuple[Any, ...]) -> Any:
    """The only value, or None. Other commands take several: here click would silently take the last."""
    if len(given) > 1:
        raise click.BadParameter(f"it takes one place, and {len(given)} are given.", context, option)
    return given[0] if given else None


def records_option(what: str, *, multiple: bool = False) -> Callable[[_F], _F]:
    """Where records are; `what` says which, and what they do there."""
    return click.option(
        "--records",
        multiple=True,
        callback=None if multiple else only_one,
        type=PLACE,
        help=f"Where {what}: a directory or an object store. {'Repeatable. ' if multiple else ''}"
        "[default: records of the pair, or STATE/records]",
    )


#: Whether and how often something is shown again.
watch_options = together(
    click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C."),
    click.option("--interval", type=INTERVAL, default=2, metavar="SECONDS", help="--watch: how often."),
)
