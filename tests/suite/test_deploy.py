"""What `deploy` has can be parsed, refers to what is there, and calls commands that exist."""

from __future__ import annotations

import configparser
import re
import shlex
from importlib import import_module
from typing import Any

import pytest

from tests.cli.test_examples import parse
from tests.guards.sources import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
yaml: Any = import_module("yaml")  # comes with the site's builder, and without types


@pytest.mark.parametrize("unit", UNITS, ids=[unit.stem for unit in UNITS])
def test_units_start_a_command_that_there_is(unit: Any) -> None:
    reader = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    reader.optionxform = str  # type: ignore[assignment,method-assign]
    reader.read(unit)
    assert reader.sections() == ["Unit", "Service", "Install"]
    service = reader["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/pairbus")
    parse(words)
    assert service["NoNewPrivileges"] == "yes"
    assert service["User"] == "pairbus"


def test_compose_starts_commands_that_there_are() -> None:
    services = yaml.safe_load((DEPLOY / "docker" / "compose.yml").read_text(encoding="utf-8"))["services"]
    assert services.keys() == {"broker", "dashboard", "syphon"}
    for service in services.values():
        parse(shlex.split(service["command"]))
        context = (DEPLOY / "docker" / service["build"]["context"]).resolve()
        assert (context / service["build"]["dockerfile"]).is_file()


def test_kubernetes_refers_to_what_is_there() -> None:
    text = (DEPLOY / "kubernetes" / "pairbus.yaml").read_text(encoding="utf-8")
    found = [*yaml.safe_load_all(text)]
    claims = {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}
    deployments = [one for one in found if one["kind"] == "Deployment"]
    assert len(deployments) == 2
    for one in deployments:
        pod = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["state"]["persistentVolumeClaim"]["claimName"] in claims
        (container,) = pod["spec"]["containers"]
        parse(container["args"])
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    (service,) = (one for one in found if one["kind"] == "Service")
    assert service["spec"]["selector"] in [
        one["spec"]["template"]["metadata"]["labels"] for one in deployments
    ]


def test_the_image_is_made_of_what_the_tree_has() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        words
        for line in re.findall(r"^COPY ((?!--).+) \S+$", text, flags=re.MULTILINE)
        for words in line.split()
    ]
    assert copied
    assert [one for one in copied if not (ROOT / one).exists()] == []
    extras = set(re.findall(r"\[([a-z,]+)\]", text))
    assert extras == {"broker,dashboard,identity,spark"}
    assert text.index("USER pairbus") < text.index("ENTRYPOINT")
