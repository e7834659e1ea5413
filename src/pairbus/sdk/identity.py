"""Signing in with Microsoft Entra ID when all that is known of a namespace is its host name."""

from __future__ import annotations

from azure.core.credentials_async import AsyncTokenCredential
from azure.identity.aio import DefaultAzureCredential

__all__ = ["default_credential"]


def default_credential() -> AsyncTokenCredential:
    """Whatever the environment has: a managed identity, variables, a developer who signed in. Close it."""
    return DefaultAzureCredential()
