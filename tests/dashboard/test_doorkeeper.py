"""Who is let in: by name, by token, and what each answer carries."""

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from pairbus.dashboard import server
from pairbus.dashboard.server import Serving
from pairbus.dashboard.watched import Watched, WatchedPair
from pairbus.errors import ConfigurationError

from .scene import TOKEN, Visitor, served

PROTECTED = ("api/state", "api/history", "api/events", "api/peek", "metrics")
OPEN = ("", "health", "static/dashboard.js", "static/dashboard.css", "static/dom.js", "static/icon.svg")


def one_pair(place: Path) -> Watched:
    return Watched(pairs=[WatchedPair(name="shop", state_dir=place)])


async def test_everything_but_the_page_needs_the_token(tmp_path: Path) -> None:
    async with served(one_pair(tmp_path)) as visitor:
        for token in (None, "", "wrong", TOKEN[:-1], f"{TOKEN}x"):
            stranger = Visitor(visitor.address, visitor.session, token)
            for path in PROTECTED:
                status, said = await stranger.ask(path)
                assert (status, "error" in said) == (401, True), path
            status, _ = await stranger.do(action="pause", pair="shop")
            assert status == 401
            for path in OPEN:
                assert (await stranger.ask(path))[0] == 200, path
        assert (await visitor.ask("api/state"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8400", 200),
        ("localhost", 200),
        ("[::1]:8400", 200),
        ("evil.example.com", 421),
        ("evil.example.com:8400", 421),
        ("localhost.evil.example.com", 421),
        ("", 421),
        ("a b", 421),
        ("[", 421),
    ],
)
async def test_it_answers_to_its_own_names_alone(tmp_path: Path, host: str, status: int) -> None:
    async with served(one_pair(tmp_path)) as visitor:
        for path in ("", "api/state", "static/dashboard.js", "metrics"):
            assert (await visitor.ask(path, Host=host))[0] == status


async def test_every_answer_has_safe_headers(tmp_path: Path) -> None:
    async with served(one_pair(tmp_path)) as visitor:
        for path in ("", "api/state", "api/nothing", "static/dashboard.js", "static/../server.py"):
            url = visitor.address.partition("#")[0] + path
            async with visitor.session.get(url) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "http" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert "Server" not in answer.headers


async def test_read_only_is_read_only(tmp_path: Path) -> None:
    async with served(one_pair(tmp_path), control=False, token=None) as visitor:
        assert (await visitor.state())["control"] is False
        status, said = await visitor.do(action="drain", pair="shop")
        assert (status, said["error"]) == (403, "this dashboard is read-only: start it with --control")


async def test_an_action_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    async with served(one_pair(tmp_path)) as visitor:
        for what in (
            {},
            {"action": "__init__"},
            {"action": "pause"},
            {"action": "pause", "pair": "other"},
            {"action": "drain", "pair": "shop", "path": 7},
            {"action": "drain", "pair": "shop"},
            {"action": "redrive", "pair": "shop"},
            {"action": "fault", "namespace": "contoso", "kind": "refuse"},
        ):
            status, said = await visitor.do(**what)
            assert (status, "error" in said) == (400, True), what
        for text in ("\ud800x", "caf\udce9"):
            status, said = await visitor.do(action="drain", pair="shop", path=text)
            assert (status, said["error"]) == (400, f"{text!a} is not valid text: write it in UTF-8")
        status, said = await visitor.do(action="pause", pair="shop")
        assert (status, said["error"].startswith("no syphon runs")) == (502, True)
        url = visitor.address.partition("#")[0] + "api/do"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with visitor.session.post(url, data="action=pause", headers=headers) as answer:
            assert answer.status == 415
        async with visitor.session.post(
            url, data="[", headers=headers | {"Content-Type": "application/json"}
        ) as answer:
            assert answer.status == 400


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
    ],
)
async def test_pages_of_others_get_nothing(tmp_path: Path, site: str, mode: str, status: int) -> None:
    async with served(one_pair(tmp_path), control=False, token=None) as visitor:
        for path in ("", "api/state", "metrics"):
            asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
            assert (await visitor.ask(path, **asked))[0] == status


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /api/do HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
    ],
)
async def test_one_who_asks_for_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    async with served(one_pair(tmp_path)) as visitor:
        async with asyncio.timeout(30.0):
            reader, writer = await asyncio.open_connection(*place(visitor))
            writer.write(said)
            with suppress(ConnectionResetError):
                await reader.read()  # to the end, which is the server's doing
            writer.close()


async def test_there_are_only_so_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    async with served(one_pair(tmp_path)) as visitor:
        opened = [await asyncio.open_connection(*place(visitor)) for _ in range(3)]
        async with asyncio.timeout(30.0):
            with pytest.raises(aiohttp.ClientError):
                await visitor.ask("health")
            for _, writer in opened:
                writer.close()
                await writer.wait_closed()
            await answered(visitor)


def place(visitor: Visitor) -> tuple[str, int]:
    url = urlsplit(visitor.address)
    return url.hostname or "", url.port or 0


async def answered(visitor: Visitor) -> None:
    while True:
        with suppress(aiohttp.ClientError):
            assert (await visitor.ask("health"))[0] == 200
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("host", "control", "token", "is_fine"),
    [
        ("127.0.0.1", False, None, True),
        ("::1", False, None, True),
        ("127.0.0.1", True, None, False),
        ("0.0.0.0", False, None, False),
        ("bus.example.com", False, None, False),
        ("0.0.0.0", True, TOKEN, True),
        ("127.0.0.1", True, "short", False),
        ("127.0.0.1", True, f"{TOKEN}\n", False),
        ("127.0.0.1", True, f"{TOKEN} {TOKEN}", False),
        ("127.0.0.1", True, "é" * 20, False),
    ],
)
def test_what_needs_a_token_has_one(host: str, control: bool, token: str | None, is_fine: bool) -> None:
    if is_fine:
        assert TOKEN not in repr(Serving(host=host, control=control, token=token))
    else:
        with pytest.raises(ConfigurationError):
            Serving(host=host, control=control, token=token)
