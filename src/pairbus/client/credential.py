"""Credentials: the asynchronous clients of the SDK await them, applications often have the other kind."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from azure.core.credentials import AccessToken

__all__ = ["ThreadedCredential", "awaitable_credential", "default_credential"]


def awaitable_credential(credential: Any) -> Any:
    """The credential as the asynchronous SDK needs it; one that has nothing to await is asked on a thread."""
    get_token = getattr(credential, "get_token", None)
    if get_token is None or inspect.iscoroutinefunction(get_token):
        return credential
    return ThreadedCredential(credential)


def default_credential() -> Any:
    """Whatever the environment has: a managed identity, variables, the signed-in developer."""
    from azure.identity.aio import DefaultAzureCredential  # late: most pairs have connection strings

    return DefaultAzureCredential()


class ThreadedCredential:
    """Asks a synchronous credential for its tokens without holding up the event loop."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **settings: Any) -> AccessToken:
        """A token for these scopes."""
        token: AccessToken = await asyncio.to_thread(self._credential.get_token, *scopes, **settings)
        return token

    async def close(self) -> None:
        """The credential belongs to whoever made it."""

    async def __aenter__(self) -> ThreadedCredential:
        return self

    async def __aexit__(self, *details: object) -> None:
        """Nothing was opened."""

    def __repr__(self) -> str:
        return f"<ThreadedCredential of {type(self._credential).__name__}>"
