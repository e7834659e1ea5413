"""What `deploy` has can be parsed, refers to what is there, and calls commands that exist."""

import configparser
import re
import shlex
from importlib import import_module
from typing import Any

import pytest

from pairbus import __version__
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
    assert service["CapabilityBoundingSet"] == ""


def test_compose_starts_commands_that_there_are() -> None:
    services = yaml.safe_load((DEPLOY / "docker" / "compose.yml").read_text(encoding="utf-8"))["services"]
    assert services.keys() == {"broker", "dashboard", "syphon"}
    for service in services.values():
        parse(shlex.split(service["command"]))
        context = (DEPLOY / "docker" / service["build"]["context"]).resolve()
        assert (context / service["build"]["dockerfile"]).is_file()
        assert service["image"] == f"pairbus:{__version__}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    assert all("healthcheck" in services[name] for name in ("broker", "dashboard"))


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
        assert_bounded(pod["spec"])
    # The token of the dashboard is its own.
    secrets = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["envFrom"]
        for one in deployments
    }
    assert [one["secretRef"]["name"] for one in secrets["pairbus-syphon"]] == ["pairbus"]
    (service,) = (one for one in found if one["kind"] == "Service")
    assert service["spec"]["selector"] in [
        one["spec"]["template"]["metadata"]["labels"] for one in deployments
    ]


def assert_bounded(pod: dict[str, Any]) -> None:
    """No root, no rights, nothing to write to but its volumes, and an image with a version."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["image"].endswith(f"pairbus:{__version__}")


def test_a_drain_by_the_clock_is_bounded_too() -> None:
    text = (ROOT / "examples" / "operations" / "cronjob.yaml").read_text(encoding="utf-8")
    pod = yaml.safe_load(text)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert_bounded(pod)
    assert {one["name"] for one in pod["containers"][0]["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }


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
    (user,) = re.findall(r"^USER (\d+)$", text, flags=re.MULTILINE)
    assert f"--uid {user} " in text
    assert text.index("USER ") < text.index("ENTRYPOINT")
    assert f"pairbus:{__version__} ." in text
