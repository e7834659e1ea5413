"""Requests to the administration address of a secondary. Each is billed, so who keeps accounts is told."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties

from pairbus.metering import NAMESPACE
from pairbus.pairing.failures import Fate
from pairbus.pairing.names import parse_backlog_queue_name

#: What hears of each request: the entity that it was about, and what became of it.
OnRequest = Callable[[str, Fate], object]


@contextmanager
def telling(on_request: OnRequest | None, entity: str) -> Iterator[None]:
    """Tell what became of the request that is made in here."""
    fate: Fate = "unknown"
    try:
        yield
        fate = "taken"
    except StopAsyncIteration:  # there was no page to ask for
        fate = "unsent"
        raise
    except Exception as error:
        fate = _fate_of(error)
        if isinstance(error, ResourceNotFoundError):  # what is not there has no account
            entity = NAMESPACE
        raise
    finally:
        if on_request is not None:
            on_request(entity, fate)


async def list_extra(
    admin: ServiceBusAdministrationClient, primary: str, count: int, on_request: OnRequest | None
) -> list[str]:
    """Backlog queues of a primary whose index is beyond the count, in the order of that."""
    extra: list[tuple[int, str]] = []
    async for queue in _list_queues(admin, on_request):
        parsed = parse_backlog_queue_name(queue.name)
        if parsed is not None and parsed.primary == primary and parsed.index >= count:
            extra.append((parsed.index, queue.name))
    return [name for _, name in sorted(extra)]


async def _list_queues(
    admin: ServiceBusAdministrationClient, on_request: OnRequest | None
) -> AsyncIterator[QueueProperties]:
    """All queues of a namespace, by one request for each page of them."""
    pages = aiter(admin.list_queues().by_page())
    while True:
        try:
            with telling(on_request, NAMESPACE):
                page = await anext(pages)
        except StopAsyncIteration:
            return
        async for queue in page:
            yield queue


def _fate_of(error: Exception) -> Fate:
    if isinstance(error, ServiceRequestError):
        return "unsent"
    # An AttributeError is the SDK's answer to a description that it did not expect.
    return "refused" if isinstance(error, HttpResponseError | AttributeError) else "unknown"
