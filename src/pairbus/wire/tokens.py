"""Where tokens for `$cbs` come from: signed with a policy's key, or asked of a credential."""

import base64
import hashlib
import hmac
import inspect
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from pairbus.pairing.names import ConnectionString
from pairbus.plumbing.shared_calls import SharedCalls
from pairbus.words import SAS_TOKEN

# As long as the SDKs ask for; tokens are renewed long before.
SAS_LIFETIME = 3600.0
_SCOPE = "https://servicebus.azure.net/.default"


@dataclass(frozen=True, slots=True)
class CbsToken:
    """A token, its kind in the words of `$cbs`, and when it ends (Unix seconds)."""

    value: str = field(repr=False)
    kind: str
    expires_at: float


class TokenSource(Protocol):
    """Gives tokens."""

    async def token(self, audience: str, now: float) -> CbsToken:
        """A token for an audience, such as `sb://host/queue`."""


@dataclass(frozen=True, slots=True)
class SasTokens:
    """Signs tokens with the key of a shared access policy."""

    key_name: str
    key: str = field(repr=False)
    lifetime: float = SAS_LIFETIME

    async def token(self, audience: str, now: float) -> CbsToken:
        expires = int(now + self.lifetime)
        resource = quote(audience, safe="")
        signed = hmac.new(self.key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
        signature = quote(base64.b64encode(signed), safe="")
        name = quote(self.key_name, safe="")
        text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={name}"
        return CbsToken(text, SAS_TOKEN, expires)


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A signature that was made elsewhere; it cannot be renewed."""

    signature: str = field(repr=False)

    async def token(self, audience: str, now: float) -> CbsToken:
        return CbsToken(self.signature, SAS_TOKEN, now + SAS_LIFETIME)


def tokens_of_string(parsed: ConnectionString) -> SasTokens | FixedToken:
    """Tokens by what a connection string has, a key or a signature."""
    if parsed.key is not None and parsed.key_name is not None:
        return SasTokens(parsed.key_name, parsed.key)
    assert parsed.signature is not None, "a connection string has a key or a signature"
    return FixedToken(parsed.signature)


class CredentialTokens:
    """Asks a `TokenCredential`, of either kind, for tokens; one that it owns it closes."""

    def __init__(self, credential: Any, *, owns: bool = False) -> None:
        self.credential = credential
        self.owns = owns
        self._asking: SharedCalls[Any] | None = None

    async def token(self, audience: str, now: float) -> CbsToken:
        if self._asking is None:
            self._asking = SharedCalls(self.credential.get_token, name="pairbus-token")
        # The SDK tells credentials that sign for an audience by this attribute.
        is_signed = getattr(self.credential, "token_type", b"jwt") in (SAS_TOKEN, SAS_TOKEN.encode())
        given = await self._asking.call(audience if is_signed else _SCOPE)
        value = given.token.decode() if isinstance(given.token, bytes) else given.token
        return CbsToken(value, SAS_TOKEN if is_signed else "jwt", float(given.expires_on))

    async def close(self) -> None:
        """Close the credential, if it is ours and can be closed."""
        if self.owns:
            await close_credential(self.credential)


async def close_credential(credential: Any) -> None:
    """Close a credential, synchronous or not, if it can be closed."""
    close = getattr(credential, "close", None)
    if close is not None:
        ended = close()
        if inspect.isawaitable(ended):
            await ended
