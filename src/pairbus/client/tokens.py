"""Where our own AMQP gets tokens from, for what the SDK's client was given: a string, a key, a credential."""

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from pairbus.sdk.side import SdkSide
from pairbus.wire.tokens import (
    CbsToken,
    CredentialTokens,
    FixedToken,
    SasTokens,
    TokenSource,
    tokens_of_string,
)


def tokens_of(side: SdkSide) -> TokenSource:
    """The source of a side's tokens. A credential stays the caller's: nobody closes it here."""
    if side.parsed is not None:
        return tokens_of_string(side.parsed)
    if isinstance(side.credential, AzureNamedKeyCredential | AzureSasCredential):
        return _KeyTokens(side.credential)
    return CredentialTokens(side.credential)


class _KeyTokens:
    """Tokens of a key or signature that its owner may replace while the client runs."""

    def __init__(self, credential: AzureNamedKeyCredential | AzureSasCredential) -> None:
        self._credential = credential

    async def token(self, audience: str, now: float) -> CbsToken:
        """A token for an audience."""
        if isinstance(self._credential, AzureSasCredential):
            return await FixedToken(self._credential.signature).token(audience, now)
        name, key = self._credential.named_key
        return await SasTokens(name, key).token(audience, now)
