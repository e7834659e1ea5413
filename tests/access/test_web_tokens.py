"""JSON web tokens: the key decides what is taken, and the clock is ours."""

import base64
import contextlib
import hashlib
import hmac
import json
import math
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.access.certificate import ensure_certificate
from pairbus.broker.access.grants import Grant, TokenRejected
from pairbus.broker.access.policies import ALL_CLAIMS, Claim, Policies
from pairbus.broker.access.tokens import check_authorization, check_token
from pairbus.broker.access.web_tokens import JwtKey
from pairbus.errors import ConfigurationError
from tests.examples import examples

NOW = 1_700_000_000.0
SECRET = "s" * 64
OWNER = "Azure Service Bus Data Owner"
SENDER = "Azure Service Bus Data Sender"
RECEIVER = "Azure Service Bus Data Receiver"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
CLAIMS: dict[str, Any] = {
    "aud": "https://servicebus.azure.net",
    "exp": int(NOW) + 60,
    "roles": [OWNER],
    "sub": "app",
}


def public_pem(key: Any) -> bytes:
    public = key.public_key()
    return bytes(
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def private_pem(key: Any) -> bytes:
    return bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def make(key: Any = SECRET, *, algorithm: str = "HS256", **changes: Any) -> str:
    """Make a token; a claim of None is left out."""
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm)


def verify(token: str, key: JwtKey | None = None) -> Grant:
    return (key or JwtKey.from_secret(SECRET)).verify(token, now=NOW)


def rejection(token: str, key: JwtKey | None = None) -> str:
    with pytest.raises(TokenRejected) as caught:
        verify(token, key)
    assert caught.value.status == 401
    return caught.value.description


def test_a_good_token() -> None:
    assert verify(make()) == Grant(ALL_CLAIMS, NOW + 60, "", "app")


def test_the_issuer_is_one_of_those_that_count(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET)
    key = JwtKey.load(file, issuers=["https://one.example/", "https://two.example/"])
    for issuer in key.issuers:
        assert verify(make(iss=issuer), key).subject == "app"
    for stranger in ("https://three.example/", "https://one.example", "", None):
        assert "InvalidIssuer" in rejection(make(iss=stranger), key)
    assert verify(make(iss="https://three.example/")).subject == "app", "whoever's, if none is named"


@pytest.mark.parametrize(
    ("roles", "claims"),
    [
        ([SENDER], {Claim.SEND}),
        ([RECEIVER], {Claim.LISTEN}),
        ([SENDER, RECEIVER, "Reader", 5], {Claim.SEND, Claim.LISTEN}),
        ([OWNER], ALL_CLAIMS),
        (SENDER, {Claim.SEND}),
    ],
)
def test_roles(roles: Any, claims: set[Claim]) -> None:
    assert verify(make(roles=roles)).claims == claims


@pytest.mark.parametrize("roles", [None, [], ["Reader"], "Reader", 5, {}, [[SENDER]], {SENDER: 1}])
def test_roles_that_give_nothing(roles: Any) -> None:
    assert SENDER in rejection(make(roles=roles))


@pytest.mark.parametrize(
    "audience",
    ["https://servicebus.azure.net", "https://servicebus.azure.net/", ["x", "https://servicebus.azure.net"]],
)
def test_audiences(audience: Any) -> None:
    assert verify(make(aud=audience))


@pytest.mark.parametrize("audience", ["https://storage.azure.com", "servicebus.azure.net", [], 5, {"a": 1}])
def test_other_audiences(audience: Any) -> None:
    assert rejection(make(aud=audience)).startswith(("InvalidAudience", "InvalidToken"))


def test_times() -> None:
    assert verify(make(exp=NOW + 0.5)).expires_at == NOW + 0.5
    assert "ExpiredToken" in rejection(make(exp=int(NOW)))
    assert "'exp'" in rejection(make(exp=None))
    assert "'aud'" in rejection(make(aud=None))
    assert "not valid yet" in rejection(make(nbf=int(NOW) + 1))
    assert verify(make(nbf=int(NOW), iat=int(NOW) + 1000))


@pytest.mark.parametrize("moment", ["soon", True, [], math.inf, math.nan])
def test_times_that_are_none(moment: Any) -> None:
    assert "'exp'" in rejection(make(exp=moment))
    assert "'nbf'" in rejection(make(nbf=moment))


def test_subjects() -> None:
    assert verify(make(sub=None, oid="o")).subject == "o"
    assert verify(make(sub=None, appid="a")).subject == "a"
    assert verify(make(sub=None)).subject == ""


@pytest.mark.parametrize(
    ("private", "algorithm"),
    [
        (RSA_KEY, "RS256"),
        (RSA_KEY, "PS512"),
        (EC_KEY, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
        (ED_KEY, "EdDSA"),
    ],
    ids=["RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA"],
)
def test_public_keys(private: Any, algorithm: str) -> None:
    key = JwtKey.from_pem(public_pem(private).decode())
    assert algorithm in key.algorithms
    assert verify(make(private, algorithm=algorithm), key).subject == "app"
    for other, other_algorithm in ((RSA_KEY, "RS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA")):
        if other is not private:
            assert "algorithm" in rejection(make(other, algorithm=other_algorithm), key)


def test_a_certificate_gives_its_public_key(tmp_path: Path) -> None:
    certificate = ensure_certificate(tmp_path, now=NOW)
    private = serialization.load_pem_private_key(certificate.key_path.read_bytes(), password=None)
    key = JwtKey.load(certificate.cert_path)
    assert key.algorithms == ("ES256",)
    assert verify(make(private, algorithm="ES256"), key)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_no_algorithm_but_the_keys_own() -> None:
    public = JwtKey.from_pem(public_pem(RSA_KEY))
    assert "algorithm" in rejection(unsigned({"alg": "none"}, CLAIMS), public)
    assert "algorithm" in rejection(unsigned({"alg": "none"}, CLAIMS))
    # The classic attack: the public key, which everybody has, as the secret of an HMAC.
    head = unsigned({"alg": "HS256"}, CLAIMS).rpartition(".")[0]
    forged = hmac.new(public_pem(RSA_KEY), head.encode(), hashlib.sha256).digest()
    assert "algorithm" in rejection(
        f"{head}.{base64.urlsafe_b64encode(forged).rstrip(b'=').decode()}", public
    )


def test_wrong_signatures() -> None:
    assert "InvalidSignature" in rejection(make("x" * 64))
    other = JwtKey.from_pem(public_pem(rsa.generate_private_key(65537, 2048)))
    assert "InvalidSignature" in rejection(make(RSA_KEY, algorithm="RS256"), other)
    signature = make().rpartition(".")[2]
    changed = unsigned({"alg": "HS256"}, {**CLAIMS, "sub": "other"}).rpartition(".")[0]
    assert "InvalidSignature" in rejection(f"{changed}.{signature}")


@pytest.mark.parametrize(
    ("length", "algorithms"),
    [(32, ("HS256",)), (48, ("HS256", "HS384")), (64, ("HS256", "HS384", "HS512"))],
)
def test_secrets_by_their_length(length: int, algorithms: tuple[str, ...]) -> None:
    assert JwtKey.from_secret("x" * length).algorithms == algorithms


def test_unusable_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="32 bytes"):
        JwtKey.from_secret("short")
    with pytest.raises(ConfigurationError, match="no shared secret"):
        JwtKey.from_secret(public_pem(RSA_KEY))
    with pytest.raises(ConfigurationError, match="private key"):
        JwtKey.from_pem(private_pem(RSA_KEY))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        JwtKey.from_pem(b"-----BEGIN PUBLIC KEY-----\nrubbish\n-----END PUBLIC KEY-----")
    with pytest.raises(ConfigurationError, match="of this kind"):
        JwtKey.from_pem(public_pem(dsa.generate_private_key(1024)))
    with pytest.raises(ConfigurationError, match="of this kind"):
        JwtKey.from_pem(public_pem(ec.generate_private_key(ec.SECP256K1())))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        JwtKey.load(tmp_path / "nothing")


def test_keys_from_files_and_no_secret_in_a_repr(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(SECRET + "\n")
    key = JwtKey.load(path)
    assert verify(make(), key)
    assert SECRET not in repr(key)
    path.write_bytes(public_pem(EC_KEY))
    assert JwtKey.load(path).algorithms == ("ES256",)


def test_through_the_common_check() -> None:
    key = JwtKey.from_secret(SECRET)
    policies = Policies.generate()
    assert check_token(make(), entity="any/entity", now=NOW, policies=policies, jwt_key=key).resource == ""
    assert check_authorization(make(), entity="", now=NOW, policies=policies, jwt_key=key).subject == "app"
    with pytest.raises(TokenRejected, match="Manage"):
        check_authorization(make(roles=[SENDER]), entity="", now=NOW, policies=policies, jwt_key=key)


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "...",
        "a.b",
        "a.b.c.d.e",
        f"{encoded(b'[' * 9000)}.e30.x",
        f"{encoded(b'[]')}.e30.x",
        f"{encoded(b'5')}.e30.x",
        f"{encoded(b'{}')}.e30.x",
        f"{encoded(json.dumps({'alg': ['HS256']}).encode())}.e30.x",
        f"{encoded(json.dumps({'alg': {'a': 1}}).encode())}.e30.x",
        f"{encoded(json.dumps({'alg': 'HS256', 'b64': False}).encode())}.e30.x",
        f"{encoded(json.dumps({'alg': 'HS256', 'crit': ['x']}).encode())}.e30.x",
        f"{encoded(json.dumps({'alg': 'HS256', 'kid': 5}).encode())}.e30.x",
        f"{encoded(bytes([255, 254]))}.e30.x",
    ],
)
def test_malformed_web_tokens(token: str) -> None:
    assert rejection(token)
    assert rejection(token, JwtKey.from_pem(public_pem(RSA_KEY)))
    assert rejection(token, JwtKey.from_pem(public_pem(EC_KEY)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=examples(150))
@given(
    st.dictionaries(st.sampled_from(["aud", "exp", "nbf", "iat", "roles", "sub", "jti", "iss"]), json_values)
)
def test_signed_claims_of_any_shape(changes: dict[str, Any]) -> None:
    claims = {**CLAIMS, **changes}
    body = f"{encoded(json.dumps({'alg': 'HS256'}).encode())}.{encoded(json.dumps(claims).encode())}"
    algorithm = jwt.get_algorithm_by_name("HS256")
    token = f"{body}.{encoded(algorithm.sign(body.encode(), SECRET.encode()))}"
    with contextlib.suppress(TokenRejected):
        grant = verify(token)
        assert grant.claims
        assert grant.expires_at > NOW


@settings(max_examples=examples(150))
@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=40))
def test_any_bytes_in_place_of_a_token(header: bytes, payload: bytes, signature: bytes) -> None:
    assert rejection(f"{encoded(header)}.{encoded(payload)}.{encoded(signature)}")
