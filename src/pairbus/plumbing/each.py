"""Several things to do, of which none may keep the others from being done."""

from collections.abc import Callable, Iterable


def call_each(acts: Iterable[Callable[[], object]]) -> None:
    """Call all of them, though some may fail; the first failure is raised in the end."""
    failure: BaseException | None = None
    for act in acts:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - it is raised when all have been called
            failure = failure or error
    if failure is not None:
        raise failure
