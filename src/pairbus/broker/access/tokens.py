"""Authentication: tokens and keys in, grants out.

Theory of operation:
1. Three things give a grant: a shared access signature, made with the key of a policy; a JSON web token, if a
   key to verify it is configured; name and key of a policy by SASL PLAIN. Anything else raises
   `TokenRejected`, and nothing that a peer sends raises anything but that.
2. A policy is the namespace's, or one that a queue or topic has of its own: that one signs for its entity
   alone. A signature covers `sr` exactly as it stands in the token, quoted, then a newline, then `se`.
   Clients quote differently, so the raw text is signed and only then decoded.
3. `sr` names the resource; `grants` says how it is compared with an entity.
4. Secrets are compared in constant time, and a policy that does not exist takes as long as a wrong key.
5. Time is an argument. A grant ends at its `expires_at`, which is infinite after SASL PLAIN.
"""

import base64
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote, unquote_plus

from pairbus.broker.engine.names import entity_of, fold

from .grants import ClaimMissing, Grant, TokenRejected, expired, resource_path
from .policies import Claim, Policies, Policy
from .web_tokens import JwtKey

# Tokens of a directory with many groups reach some 10 KB; signatures stay below 1 KB.
MAX_TOKEN: Final = 16_384
# RFC 4616 lets each of the three parts be 255 octets; ours are policies' names and keys.
MAX_PLAIN: Final = 1_024

_SCHEME: Final = "sharedaccesssignature "
_EXPIRY: Final = re.compile(r"[0-9]{1,12}")
_FIELDS: Final = ("sr", "sig", "se", "skn")
# Stands in for the key of a policy that does not exist.
_NO_POLICY: Final = Policy("none", secrets.token_urlsafe(32), frozenset({Claim.SEND}))


# The policies that the entity at a folded path has of its own.
EntityRules = Callable[[str], Iterable[Policy]]


def check_token(
    token: object,
    *,
    entity: str,
    now: float,
    policies: Policies,
    jwt_key: JwtKey | None = None,
    rules: EntityRules = lambda path: (),
) -> Grant:
    """Check a token for the path of an entity, empty for the namespace; `rules` are the entity's own."""
    if not isinstance(token, str) or not token.isascii() or not 0 < len(token) <= MAX_TOKEN:
        raise TokenRejected(f"MalformedToken: A token is ASCII text of at most {MAX_TOKEN} characters.")
    text = token.strip()
    if text[: len(_SCHEME)].lower() == _SCHEME:
        grant = _check_signature(text[len(_SCHEME) :], now, policies, rules)
    elif jwt_key is not None:
        grant = jwt_key.verify(text.removeprefix("Bearer "), now=now)
    else:
        raise TokenRejected(
            "InvalidToken: This namespace takes shared access signatures only. Use a connection string, or "
            "start the namespace with a key to verify JSON web tokens."
        )
    if not grant.covers(entity):
        raise TokenRejected(
            f"InvalidAudience: The token is for '{grant.resource}', not for '{fold(entity)}'."
        )
    return grant


def check_authorization(
    token: str | None,
    *,
    entity: str,
    now: float,
    policies: Policies,
    jwt_key: JwtKey | None = None,
    rules: EntityRules = lambda path: (),
) -> Grant:
    """Check the token of an HTTP request, which must give the claim to manage."""
    if token is None:
        raise TokenRejected("MissingToken: The request has no Authorization header. Send a token in it.")
    grant = check_token(token, entity=entity, now=now, policies=policies, jwt_key=jwt_key, rules=rules)
    if Claim.MANAGE not in grant.claims:
        raise ClaimMissing(
            f"InvalidClaim: '{Claim.MANAGE}' is required for this operation. Use a policy that has it."
        )
    return grant


def check_plain(response: object, *, policies: Policies) -> Grant:
    """Check the response of SASL PLAIN: an identity that is ignored, a policy's name, and its key."""
    if not isinstance(response, (bytes, bytearray, memoryview)) or len(response) > MAX_PLAIN:
        raise TokenRejected(f"MalformedToken: A PLAIN response is at most {MAX_PLAIN} bytes.")
    parts = bytes(response).split(b"\0")
    if len(parts) != 3:
        raise TokenRejected("MalformedToken: A PLAIN response has an identity, a policy's name and its key.")
    policy = policies.get(parts[1].decode("utf-8", errors="replace")) or _NO_POLICY
    if not hmac.compare_digest(parts[2], policy.key.encode("utf-8")):
        raise TokenRejected(
            "InvalidKey: The policy or its key is wrong. Compare them with the connection string."
        )
    return Grant(policy.claims, math.inf, "", policy.name)


def _check_signature(text: str, now: float, policies: Policies, rules: EntityRules) -> Grant:
    fields = _parse_fields(text)
    if not _EXPIRY.fullmatch(fields["se"]):
        raise TokenRejected("MalformedToken: The token's 'se' must be Unix seconds.")
    name, resource = unquote_plus(fields["skn"]), resource_path(unquote_plus(fields["sr"]))
    own = [each for each in rules(entity_of(resource)) if each.name == name] if resource else []
    signed = f"{fields['sr']}\n{fields['se']}".encode("ascii")
    # Not unquote_plus: a plus sign belongs to base64.
    given = unquote(fields["sig"]).encode("utf-8")
    own.append(policies.get(name) or _NO_POLICY)
    signers = [each for each in own if _signs(each, signed, given)]
    if not signers:
        raise TokenRejected(
            "InvalidSignature: The token has an invalid signature, or its policy does not exist."
        )
    expires_at = float(fields["se"])
    if expires_at <= now:
        raise expired(expires_at)
    return Grant(signers[0].claims, expires_at, resource, name)


def _signs(policy: Policy, signed: bytes, given: bytes) -> bool:
    expected = base64.b64encode(hmac.digest(policy.key.encode("utf-8"), signed, hashlib.sha256))
    return hmac.compare_digest(expected, given)


def _parse_fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.strip().partition("=")
        if name.lower() in fields:
            raise TokenRejected("MalformedToken: A field of the token stands twice.")
        fields[name.lower()] = value
    for name in _FIELDS:
        if not fields.get(name):
            raise TokenRejected(f"MalformedToken: The token lacks its field '{name}'.")
    return fields
