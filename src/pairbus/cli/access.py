"""From the settings of a pair to what reaches it: its sides, and a paired client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .pairs import PairSettings, SideAddress

if TYPE_CHECKING:
    from pairbus.client.aio import PairedServiceBusClient
    from pairbus.client.observers.observer import Observer
    from pairbus.sdk.side import SdkSide


@asynccontextmanager
async def signed_in(settings: PairSettings) -> AsyncIterator[ReachablePair]:
    """The pair, with a credential for the sides that are reached by host name, closed at the end."""
    if settings.primary.host is None and settings.secondary.host is None:
        yield ReachablePair(settings, None)
        return
    from pairbus.sdk.credentials import default_credential  # late: most pairs have connection strings

    credential = default_credential()
    try:
        yield ReachablePair(settings, credential)
    finally:
        await credential.close()


@dataclass(frozen=True, slots=True)
class ReachablePair:
    """A pair that can be reached."""

    settings: PairSettings
    credential: Any

    @property
    def primary(self) -> SdkSide:
        """The primary; close it."""
        return self._side(self.settings.primary)

    @property
    def secondary(self) -> SdkSide:
        """The secondary; close it."""
        return self._side(self.settings.secondary)

    def client(self, observers: Iterable[Observer]) -> PairedServiceBusClient:
        from pairbus.client.aio import PairedServiceBusClient
        from pairbus.stores.places import write_uri

        settings = self.settings
        return PairedServiceBusClient(
            settings.primary.text,
            self._credential_of(settings.primary),
            settings.secondary.text,
            self._credential_of(settings.secondary),
            options=settings.options,
            primary_name=settings.name,
            state_dir=settings.state_dir,
            records=None if settings.shared_records is None else write_uri(settings.shared_records),
            observers=observers,
            sdk_options=settings.sdk_options,
        )

    def _side(self, address: SideAddress) -> SdkSide:
        from pairbus.sdk.side import SdkSide

        return SdkSide(address.text, self._credential_of(address), keywords=self.settings.sdk_options)

    def _credential_of(self, side: SideAddress) -> Any:
        return None if side.host is None else self.credential
