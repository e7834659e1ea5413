"""A drill that is watched: the page is there while it goes on, shows its outage, and is gone afterwards."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pairbus.cli.drill_live import watch_live
from pairbus.cost.sheet import default_sheet
from pairbus.drill.play import play
from pairbus.drill.scenario import parse_scenario

from .test_drill import SHOP


async def test_a_drill_can_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = parse_scenario(SHOP, name="shop", where="shop")
    playing = asyncio.create_task(
        play(scenario, version="test", on_spark=False, onlooker=watch_live(0, default_sheet()))
    )
    told, seen = "", set[str]()
    async with aiohttp.ClientSession() as session:
        while not playing.done():
            told += capsys.readouterr().err
            if found := re.search(r"watch it: (\S+)", told):
                seen |= await look(session, found.group(1))
            await asyncio.sleep(0.1)
        result = await playing
        assert found is not None
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{found.group(1)}health")
    assert result.passed or result.inconclusive
    assert {"orders healthy", "orders failed_over", "contoso", "contoso-dr"} <= seen


async def look(session: aiohttp.ClientSession, address: str) -> set[str]:
    try:
        async with session.get(f"{address}api/state") as answer:
            state: dict[str, Any] = await answer.json()
    except aiohttp.ClientConnectionError:  # it has ended
        return set()
    entities = {
        f"{one['path']} {one['state']}" for pair in state.get("pairs", ()) for one in pair["entities"]
    }
    broker = state.get("broker") or {"namespaces": []}
    return entities | {one["name"] for one in broker["namespaces"]}
