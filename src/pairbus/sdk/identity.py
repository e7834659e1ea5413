"""Signing in with Microsoft Entra ID when all that is known of a namespace is its host name."""

from __future__ import annotations

from azure.core.credentials_async import AsyncTokenCredential

__all__ = ["default_credential"]


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
