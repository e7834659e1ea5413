"""JSON web tokens, as a `TokenCredential` of a client brings them.

They count only when the namespace's owner has given a key to verify them. The key's type decides which
algorithms are taken, never the token: a public key must not be usable as the secret of an HMAC. What they
allow stands in their `roles`, by the names of the service's built-in roles, for the whole namespace. A key
may be that of many issuers, as those of a directory's tenants are: the owner then names the ones that count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import read_given

from .grants import Grant, TokenRejected, expired
from .policies import ALL_CLAIMS, Claim

AUDIENCES: Final = ("https://servicebus.azure.net", "https://servicebus.azure.net/")
ROLES: Final[Mapping[str, frozenset[Claim]]] = {
    "Azure Service Bus Data Sender": frozenset({Claim.SEND}),
    "Azure Service Bus Data Receiver": frozenset({Claim.LISTEN}),
    "Azure Service Bus Data Owner": ALL_CLAIMS,
}

# RFC 7518, 3.2: the key of an HMAC must be at least as long as its hash.
_SECRET_ALGORITHMS: Final = (("HS256", 32), ("HS384", 48), ("HS512", 64))
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
# RFC 7518, 3.3.
_LOWEST_RSA_BITS: Final = 2048
# What the parsers of a hostile token may raise besides their own errors.
_PARSING_ERRORS: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

_USABLE: Final = (
    "Give a public key (RSA of 2048 bits or more, EC P-256, P-384, P-521, or Ed25519) or a certificate."
)


@dataclass(frozen=True)
class JwtKey:
    """A key that verifies tokens, and the algorithms that go with it."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]
    # Whose tokens count; whoever's, if there are none.
    issuers: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path, *, issuers: Sequence[str] = ()) -> JwtKey:
        """Read a key from a file: PEM, or else a shared secret."""
        try:
            content = read_given(path).strip()
        except OSError as error:
            raise ConfigurationError(f"The key {path} cannot be read: {error.strerror}. {_USABLE}") from None
        key = cls.from_pem(content) if content.startswith(b"-----BEGIN") else cls.from_secret(content)
        return replace(key, issuers=tuple(issuers))

    @classmethod
    def from_secret(cls, secret: bytes | str) -> JwtKey:
        """Take a secret that the issuer of tokens shares with us."""
        raw = secret.encode("utf-8") if isinstance(secret, str) else secret
        if raw.lstrip().startswith(b"-----BEGIN"):
            raise ConfigurationError(f"A PEM key is no shared secret. {_USABLE}")
        algorithms = tuple(name for name, length in _SECRET_ALGORITHMS if len(raw) >= length)
        if not algorithms:
            raise ConfigurationError("A shared secret for tokens needs at least 32 bytes. Give a longer one.")
        return cls(raw, algorithms)

    @classmethod
    def from_pem(cls, pem: bytes | str) -> JwtKey:
        """Take a public key, or the one of a certificate."""
        # Late, because the import alone takes longer than the start of a namespace.
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        raw = pem.encode("utf-8") if isinstance(pem, str) else pem
        if b"PRIVATE KEY-----" in raw:
            raise ConfigurationError(f"This is a private key; verifying needs only the public one. {_USABLE}")
        try:
            if b"BEGIN CERTIFICATE-----" in raw:
                key: Any = x509.load_pem_x509_certificate(raw).public_key()
            else:
                key = load_pem_public_key(raw)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ConfigurationError(
                f"The PEM key cannot be read ({type(error).__name__}). {_USABLE}"
            ) from None
        return cls(key, _algorithms_of(key))

    def verify(self, token: str, *, now: float) -> Grant:
        """Check a token and give its grant."""
        # Late, because the import alone takes longer than the start of a namespace.
        import jwt

        # Times are ours to check, since the clock is an argument.
        options: Any = {
            "require": ["exp", "aud"],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        }
        try:
            found = jwt.decode(
                token, self.key, algorithms=list(self.algorithms), audience=AUDIENCES, options=options
            )
        except jwt.InvalidAudienceError:
            raise TokenRejected(f"InvalidAudience: The token is not for {AUDIENCES[0]}.") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRejected(f"InvalidToken: The token lacks its claim {error.claim!r}.") from None
        except jwt.InvalidSignatureError:
            raise TokenRejected("InvalidSignature: The token has an invalid signature.") from None
        except jwt.InvalidAlgorithmError:
            allowed = ", ".join(self.algorithms)
            raise TokenRejected(f"InvalidToken: The token's algorithm is not one of {allowed}.") from None
        except (jwt.PyJWTError, *_PARSING_ERRORS):
            raise TokenRejected("MalformedToken: The JSON web token cannot be read.") from None
        if self.issuers and found.get("iss") not in self.issuers:
            counted = ", ".join(self.issuers)
            raise TokenRejected(f"InvalidIssuer: The token's issuer is none of those that count: {counted}.")
        return _grant(found, now)


def _algorithms_of(key: Any) -> tuple[str, ...]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LOWEST_RSA_BITS:
        return _RSA_ALGORITHMS
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVE_ALGORITHMS:
        return _CURVE_ALGORITHMS[key.curve.name]
    if isinstance(key, ed25519.Ed25519PublicKey):
        return ("EdDSA",)
    raise ConfigurationError(f"Tokens cannot be verified with a key of this kind. {_USABLE}")


def _grant(found: Mapping[str, Any], now: float) -> Grant:
    expires_at = _moment(found, "exp")
    if expires_at <= now:
        raise expired(expires_at)
    if "nbf" in found and _moment(found, "nbf") > now:
        raise TokenRejected("InvalidToken: The token is not valid yet. Compare the clocks.")
    roles = found.get("roles")
    names = [role for role in roles if isinstance(role, str)] if isinstance(roles, list) else [roles]
    claims = frozenset[Claim]().union(
        *(ROLES.get(name, frozenset()) for name in names if isinstance(name, str))
    )
    if not claims:
        raise TokenRejected(
            f"InvalidToken: The token's roles give no right here. It needs one of: {', '.join(ROLES)}."
        )
    subject = next((found[key] for key in ("sub", "oid", "appid") if isinstance(found.get(key), str)), "")
    return Grant(claims, expires_at, "", subject)


# The year 9999: no clock shows later ones.
_END_OF_TIME = 253_402_300_800


def _moment(found: Mapping[str, Any], name: str) -> float:
    value = found[name]
    # Compared, not converted: an integer may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _END_OF_TIME:
        raise TokenRejected(f"InvalidToken: The token's claim {name!r} is no time.")
    return float(value)
