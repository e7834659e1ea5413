"""Pairs and options travel by pickle as names; secrets neither travel nor show."""

import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.broker.access.certificate import ensure_certificate
from pairbus.errors import ConfigurationError
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair, Side
from pairbus.wire.tokens import CredentialTokens, FixedToken, SasTokens

TEXT = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"


def test_names_survive_pickle_and_are_looked_up_where_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pickle.loads(pickle.dumps(PumpPair.from_env("A_PRIMARY", "A_SECONDARY")))
    assert pair == PumpPair.from_env("A_PRIMARY", "A_SECONDARY")
    with pytest.raises(ConfigurationError, match="A_PRIMARY is not set"):
        pair.primary.resolve()
    monkeypatch.setenv("A_PRIMARY", TEXT)
    assert pair.label() == "contoso"
    assert pair.primary.resolve().endpoint.host == "contoso.servicebus.windows.net"


def test_connection_strings_are_not_pickled_and_not_shown() -> None:
    pair = PumpPair.from_connection_strings(TEXT, TEXT)
    resolved = pair.primary.resolve()
    for thing in (pair, pair.primary, resolved, resolved.tokens(), resolved.place()):
        assert "c2VjcmV0" not in repr(thing)
    with pytest.raises(ConfigurationError, match="environment variable") as caught:
        pickle.dumps(pair)
    assert "c2VjcmV0" not in str(caught.value)


def test_the_kind_of_token_follows_from_the_side() -> None:
    assert isinstance(Side(connection_string=TEXT).resolve().tokens(), SasTokens)
    signed = "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=z"
    assert isinstance(Side(connection_string=signed).resolve().tokens(), FixedToken)
    host = Side(host="contoso.servicebus.windows.net", credential="builtins:object")
    assert isinstance(host.resolve().tokens(), CredentialTokens)
    with pytest.raises(ConfigurationError, match="There is no credential"):
        Side(host="h", credential="no.such.module:Thing").resolve().tokens()
    with pytest.raises(ConfigurationError, match="exactly one"):
        Side()


class Signing:
    """A credential whose tokens are signatures for an audience, which the SDK tells by its `token_type`."""

    token_type = b"servicebus.windows.net:sastoken"

    def get_token(self, *scopes: str) -> Any:
        return SimpleNamespace(token=f"signed for {scopes[0]}".encode(), expires_on=2000)


async def test_a_credential_of_this_process_gives_the_tokens_and_does_not_travel() -> None:
    side = Side(host="contoso.servicebus.windows.net", token_source=CredentialTokens(Signing()))
    token = await side.resolve().tokens().token("sb://h/q", 1000.0)
    assert (token.value, token.kind) == ("signed for sb://h/q", "servicebus.windows.net:sastoken")
    with pytest.raises(ConfigurationError, match="A credential is not sent"):
        pickle.dumps(side)


def test_tls_off_the_loopback(tmp_path: Path) -> None:
    assert Side(connection_string=TEXT).resolve().place().tls is not None
    local = "Endpoint=sb://127.0.0.1:5672/;SharedAccessKeyName=a;SharedAccessKey=b"
    assert Side(connection_string=local).resolve().place().tls is None
    made = ensure_certificate(tmp_path, now=time.time())
    assert Side(connection_string=local, ca_file=str(made.cert_path)).resolve().place().tls is not None
    emulator = (
        "Endpoint=sb://broker:5672/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    )
    assert Side(connection_string=emulator).resolve().place().tls is None


def test_options_are_checked_and_survive_pickle() -> None:
    options = PumpOptions(ttl_policies={"Orders": "deduct"}, max_rate=5.0)
    assert pickle.loads(pickle.dumps(options)) == options
    assert (options.policy_of("orders"), options.policy_of("bills")) == ("deduct", "pause")
    for wrong in ({"poll": 0.0}, {"max_rate": -1.0}, {"max_in_hand": 0}, {"longest_back_off": 0.1}):
        with pytest.raises(ConfigurationError):
            PumpOptions(**wrong)
