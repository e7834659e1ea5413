"""Policies: parsed, kept in a file, written into connection strings, and never shown."""

import base64
import json
import os
import pickle
import stat
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, parse_connection_string

from pairbus.broker.access.policies import ALL_CLAIMS, ROOT_POLICY, Claim, Policies, Policy, connection_string
from pairbus.errors import ConfigurationError

KEY = "c2VjcmV0c2VjcmV0PT0="


@pytest.mark.parametrize(
    ("text", "name", "key", "claims"),
    [
        ("app=abc:send", "app", "abc", {Claim.SEND}),
        ("app=abc:send,listen", "app", "abc", {Claim.SEND, Claim.LISTEN}),
        ("app=abc: Listen ", "app", "abc", {Claim.LISTEN}),
        ("app=abc:MANAGE", "app", "abc", ALL_CLAIMS),
        (f"app={KEY}:send", "app", KEY, {Claim.SEND}),
        ("app=a:b=c:send", "app", "a:b=c", {Claim.SEND}),
        ("a.b_c-1=+/=:listen", "a.b_c-1", "+/=", {Claim.LISTEN}),
    ],
)
def test_parse(text: str, name: str, key: str, claims: set[Claim]) -> None:
    assert Policy.parse(text) == Policy(name, key, frozenset(claims))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "NAME=KEY:RIGHTS"),
        ("app", "NAME=KEY:RIGHTS"),
        ("app=hidden", "NAME=KEY:RIGHTS"),
        ("app:send", "NAME=KEY:RIGHTS"),
        ("app=hidden:", "send, listen, manage"),
        ("app=hidden:write", "send, listen, manage"),
        ("app=prefix:hidden", "send, listen, manage"),
        ("app=hidden:send,", "send, listen, manage"),
        ("=hidden:send", "name"),
        ("a b=hidden:send", "name"),
        ("app=:send", "key"),
        ("app=hid den:send", "key"),
        ("app=hidden;x:send", "key"),
        (f"app={'hidden' * 50}:send", "key"),
    ],
)
def test_parse_says_how_to_mend_it_and_hides_the_key(text: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word) as caught:
        Policy.parse(text)
    assert "hidden" not in str(caught.value)


def test_manage_includes_the_other_rights() -> None:
    assert Policy("app", KEY, frozenset({Claim.MANAGE})).claims == ALL_CLAIMS
    assert "Send" in Policy("app", KEY, frozenset({Claim.SEND})).claims
    with pytest.raises(ConfigurationError, match="no right"):
        Policy("app", KEY, frozenset())


def test_the_key_stands_in_no_repr() -> None:
    policy = Policy("app", KEY, frozenset({Claim.SEND}))
    policies = Policies.generate([policy])
    assert repr(policies) == f"Policies({ROOT_POLICY}, send, listen, app)"
    for text in (repr(policy), str(policy), repr(policies), str(policies), f"{policies!r}"):
        assert KEY not in text
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_default_policies_are_random() -> None:
    first, second = Policies.generate(), Policies.generate()
    assert {policy.name: policy.claims for policy in first.values()} == {
        ROOT_POLICY: ALL_CLAIMS,
        "send": {Claim.SEND},
        "listen": {Claim.LISTEN},
    }
    keys = {policy.key for policies in (first, second) for policy in policies.values()}
    assert len(keys) == 6
    assert all(len(base64.b64decode(key, validate=True)) == 32 for key in keys)


def test_a_given_policy_takes_the_place_of_a_default_one() -> None:
    policies = Policies.generate(
        [Policy.parse(f"{ROOT_POLICY}={KEY}:manage"), Policy.parse(f"app={KEY}:send")]
    )
    assert policies.root.key == KEY
    assert "app" in policies
    assert len(policies) == 4
    assert policies.get("none") is None


def test_keys_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "contoso" / "policies.json"
    made = Policies.load_or_create(path)
    again = Policies.load_or_create(path)
    assert list(again) == list(made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["policies.json"]


def test_given_policies_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    extra = Policy.parse(f"app={KEY}:send")
    assert "app" in Policies.load_or_create(path, given=[extra])
    assert "app" in Policies.load_or_create(path, given=[extra])
    assert "app" not in Policies.load_or_create(path)
    assert KEY not in path.read_text()


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    Policies.load_or_create(path)
    path.chmod(0o644)
    Policies.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hidden",
        b"[]",
        b"\xff",
        b'{"policies": [{"name": "a"}]}',
        b'{"policies": [{"name": "a", "key": "hidden", "claims": ["hidden"]}]}',
        b'{"policies": [{"name": 5, "key": "hidden", "claims": ["Send"]}]}',
        b'{"policies": [{"name": "a", "key": "hidden", "claims": ["Send"]}]}',
        b'{"policies": 5}',
    ],
)
def test_a_broken_file_is_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "policies.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"policies\.json") as caught:
        Policies.load_or_create(path)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert path.read_bytes() == content


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policies.json"
    made = Policies.load_or_create(path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            Policies.generate().save(path)
    assert os.listdir(tmp_path) == ["policies.json"]
    assert list(Policies.load(path)) == list(made)


def test_the_file_is_json_that_people_can_read(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    Policies([Policy("a", KEY, frozenset({Claim.SEND, Claim.LISTEN}))], made_at=1.5).save(path)
    assert json.loads(path.read_text()) == {
        "made_at": 1.5,
        "policies": [{"name": "a", "key": KEY, "claims": ["Listen", "Send"]}],
    }


def test_connection_string() -> None:
    policy = Policy("app", KEY, frozenset({Claim.SEND}))
    text = connection_string("127.0.0.1", 5672, namespace="contoso", policy=policy)
    assert text == (
        f"Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=app;SharedAccessKey={KEY};"
        "UseDevelopmentEmulator=true;Namespace=contoso"
    )
    parsed = parse_connection_string(text)
    assert parsed.fully_qualified_namespace == "127.0.0.1:5672"
    assert (parsed.shared_access_key_name, parsed.shared_access_key) == ("app", KEY)
    ServiceBusClient.from_connection_string(text).close()
    assert "sb://[::1]:1;" in connection_string("::1", 1, namespace="n", policy=policy)


def test_older_policies_are_as_old_as_their_file(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    Policies.generate(now=1.0).save(path)
    assert Policies.load(path).made_at == 1.0
    kept = json.loads(path.read_text())
    del kept["made_at"]
    path.write_text(json.dumps(kept))
    os.utime(path, (1_700_000_000.0, 1_700_000_000.0))
    assert Policies.load_or_create(path, now=5.0).made_at == 1_700_000_000.0
