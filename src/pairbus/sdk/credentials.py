"""Credentials: the one that the environment has, and any at the border between threads and event loops.

The inner clients are asynchronous and the receivers of the synchronous facade are not, whatever kind of
credential the application has. Keys and signatures, which the SDK takes everywhere, pass as they are. A
credential is its owner's: nothing here closes it.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential

from pairbus.plumbing.shared_calls import SharedCalls
from pairbus.portal import Portal


def default_credential() -> AsyncTokenCredential:
    """Whatever the environment has: a managed identity, variables, a developer who signed in. Close it."""
    try:
        from azure.identity.aio import DefaultAzureCredential
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Signing in with Microsoft Entra ID needs azure-identity: pip install 'pairbus[identity]'",
            name="azure.identity",
        ) from error
    return DefaultAzureCredential()


def for_event_loop(credential: Any) -> Any:
    """The credential as the SDK's asynchronous clients want it."""
    return _Awaited(credential) if hasattr(credential, "get_token") else credential


def for_threads(credential: Any, portal: Callable[[], Portal]) -> Any:
    """The credential as the SDK's synchronous clients want it; what has to be awaited is, on the portal."""
    return _Blocking(credential, portal) if hasattr(credential, "get_token") else credential


class _Wrapped:
    """A credential of either kind. The SDK tells tokens apart by `token_type`, where there is one."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        if hasattr(credential, "token_type"):
            self.token_type = credential.token_type

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {type(self._credential).__name__}>"


class _Awaited(_Wrapped):
    def __init__(self, credential: Any) -> None:
        super().__init__(credential)
        self._asking = SharedCalls[AccessToken](credential.get_token, name="pairbus-token")

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Ask for a token; where that blocks, on another thread."""
        return await self._asking.call(*scopes, **options)


class _Blocking(_Wrapped):
    def __init__(self, credential: Any, portal: Callable[[], Portal]) -> None:
        super().__init__(credential)
        self._portal = portal

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Ask for a token, and wait for it."""
        answer = self._credential.get_token(*scopes, **options)
        token: AccessToken = self._portal().run(_wait, answer) if inspect.isawaitable(answer) else answer
        return token


async def _wait(answer: Awaitable[Any]) -> Any:
    return await answer
