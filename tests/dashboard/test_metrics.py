"""Metrics, rules, runbook and Grafana dashboard agree; each alert is raised by what it is for."""

import json
import re
import subprocess
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pairbus.broker import Broker
from pairbus.dashboard.headline import headline
from pairbus.dashboard.metrics import FAMILIES, write_metrics
from pairbus.dashboard.pages import read_runbook
from pairbus.dashboard.picture import picture_pair
from tests.guards.sources import ROOT

from .scene import PAIR, open_client, send, served, watch
from .test_pages import pair_of, seen

RULES = ROOT / "deploy" / "prometheus" / "pairbus.rules.yml"
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
GRAFANA = json.loads((ROOT / "deploy" / "grafana" / "pairbus.json").read_text(encoding="utf-8"))
NAMES = {family.name for family in FAMILIES}
yaml: Any = import_module("yaml")  # comes with the site's builder, and without types
WRITTEN = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule["expr"] for rule in WRITTEN}
IDLE = {"state": "idle", "path": None, "moved": 0, "dead_lettered": 0, "waiting": 0, "trouble": None}
CLIENT = 'pair="shop",client="host:1"'
# For each alert, series that raise it and series that do not.
TRIALS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "PairFaulted": ({f"pairbus_client_fault{{{CLIENT}}}": 1}, {f"pairbus_client_fault{{{CLIENT}}}": 0}),
    "EntityFaulted": (
        {'pairbus_entity_worst_state{pair="shop",path="orders",state="faulted"}': 1},
        {'pairbus_entity_worst_state{pair="shop",path="orders",state="suspect"}': 1},
    ),
    "EntityRefuses": (
        {'pairbus_entity_refusing{pair="shop",path="orders"}': 1},
        {'pairbus_entity_refusing{pair="shop",path="orders"}': 0},
    ),
    "EntityFailedOver": (
        {'pairbus_entity_worst_state{pair="shop",path="orders",state="failed_over"}': 1},
        {'pairbus_entity_worst_state{pair="shop",path="orders",state="healthy"}': 1},
    ),
    "NoRotationLeft": (
        {
            f"pairbus_client_rotation_usable{{{CLIENT}}}": 0,
            f"pairbus_client_rotation_queues{{{CLIENT}}}": 10,
        },
        {f"pairbus_client_rotation_usable{{{CLIENT}}}": 0, f"pairbus_client_rotation_queues{{{CLIENT}}}": 0},
    ),
    "BacklogOld": (
        {'pairbus_backlog_path_oldest_seconds{pair="shop",path="orders"}': 3600},
        {'pairbus_backlog_path_oldest_seconds{pair="shop",path="orders"}': 60},
    ),
    "NobodyDrains": (
        {
            'pairbus_backlog_messages{pair="shop",queue="q/0"}': 1,
            'pairbus_drain_running{pair="shop"}': 0,
        },
        {
            'pairbus_backlog_messages{pair="shop",queue="q/0"}': 1,
            'pairbus_drain_running{pair="shop"}': 1,
        },
    ),
    "PathsWaiting": ({'pairbus_drain_waiting{pair="shop"}': 3}, {'pairbus_drain_waiting{pair="shop"}': 0}),
    "DeadLetters": (
        {'pairbus_backlog_dead_letters{pair="shop",queue="q/0"}': 1},
        {'pairbus_backlog_dead_letters{pair="shop",queue="q/0"}': 0},
    ),
    "BacklogQueuesMissing": (
        {'pairbus_backlog_missing_queues{pair="shop"}': 2},
        {'pairbus_backlog_missing_queues{pair="shop"}': 0},
    ),
    "SpoolFilling": (
        {
            f"pairbus_client_spool_bytes{{{CLIENT}}}": 60,
            f"pairbus_client_spool_limit_bytes{{{CLIENT}}}": 100,
        },
        {f"pairbus_client_spool_bytes{{{CLIENT}}}": 0, f"pairbus_client_spool_limit_bytes{{{CLIENT}}}": 0},
    ),
    "SpoolLeft": (
        {'pairbus_spool_left_bytes{pair="shop"}': 1},
        {'pairbus_spool_left_bytes{pair="shop"}': 0},
    ),
    "SpoolKeepsRefused": (
        {'pairbus_spool_refused{pair="shop"}': 0, 'pairbus_spool_damaged{pair="shop"}': 1},
        {'pairbus_spool_refused{pair="shop"}': 0, 'pairbus_spool_damaged{pair="shop"}': 0},
    ),
    "RecordsNotWritten": (
        {f"pairbus_client_records_lost{{{CLIENT}}}": 1},
        {f"pairbus_client_records_lost{{{CLIENT}}}": 0},
    ),
    "RecordsNotShipped": (
        {f"pairbus_client_records_lag_seconds{{{CLIENT}}}": 3600},
        {f"pairbus_client_records_lag_seconds{{{CLIENT}}}": 30},
    ),
    "VerdictNotClean": (
        {'pairbus_verdict_clean{pair="shop"}': 0},
        {'pairbus_verdict_clean{pair="shop"}': 1},
    ),
    "ClientGone": ({f"pairbus_client_up{{{CLIENT}}}": 0}, {f"pairbus_client_up{{{CLIENT}}}": 1}),
    "BudgetSpent": (
        {'pairbus_cost_total{pair="shop",currency="USD"}': 11, "pairbus_budget": 10},
        {'pairbus_cost_total{pair="shop",currency="USD"}': 11},  # without a budget there is none to spend
    ),
    "BudgetForecast": (
        {
            'pairbus_cost_total{pair="shop",currency="USD"}': 9,
            'pairbus_cost_in_a_day{pair="shop",currency="USD"}': 11,
            "pairbus_budget": 10,
        },
        {
            'pairbus_cost_total{pair="shop",currency="USD"}': 11,
            'pairbus_cost_in_a_day{pair="shop",currency="USD"}': 12,
            "pairbus_budget": 10,
        },
    ),
    "SourceBlind": (
        {'pairbus_source_up{pair="shop",source="backlog"}': 0},
        {'pairbus_source_up{pair="shop",source="backlog"}': 1},
    ),
    "DashboardGone": ({}, {'pairbus_source_up{pair="shop",source="clients"}': 1}),
}


def promtool(program: Path, *arguments: str) -> None:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def trial(series: dict[str, float], *, expression: str, expected: list[str]) -> dict[str, Any]:
    """A test as promtool reads it: these series, constant for an hour, and which alerts are firing then."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}+0x60"} for name, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) ({expression})",
                "eval_time": "1h",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected],
            }
        ],
    }


def run_trials(program: Path, place: Path, trials: list[dict[str, Any]]) -> None:
    file = place / "trials.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": trials}), encoding="utf-8")
    promtool(program, "test", "rules", str(file))


def test_rules_and_configuration_can_be_read(promtool_program: Path) -> None:
    promtool(promtool_program, "check", "rules", str(RULES))
    promtool(promtool_program, "check", "config", "--syntax-only", str(RULES.parent / "prometheus.yml"))


def test_each_alert_is_raised_by_what_it_is_for_and_by_nothing_else(
    promtool_program: Path, tmp_path: Path
) -> None:
    assert TRIALS.keys() == ALERTS.keys()
    trials = []
    for alert, (raising, harmless) in TRIALS.items():
        firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        trials.append(trial(raising, expression=firing, expected=[alert]))
        trials.append(trial(harmless, expression=firing, expected=[]))
    run_trials(promtool_program, tmp_path, trials)


def test_a_loss_gets_somebody_up_and_missing_records_do_not(promtool_program: Path, tmp_path: Path) -> None:
    def verdict(lost: int, severity: str, expected: list[str]) -> dict[str, Any]:
        series: dict[str, float] = {
            'pairbus_verdict_clean{pair="shop"}': 0,
            'pairbus_verdict_lost{pair="shop"}': lost,
        }
        return trial(
            series,
            expression=f'ALERTS{{severity="{severity}",alertname="VerdictNotClean"}}',
            expected=expected,
        )

    said = ["VerdictNotClean"]
    trials = [
        verdict(2, "page", said),
        verdict(2, "ticket", []),
        verdict(0, "page", []),
        verdict(0, "ticket", said),
    ]
    run_trials(promtool_program, tmp_path, trials)


async def test_an_outage_raises_the_alerts_that_it_should(promtool_program: Path, tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker["contoso"].create_queue("orders")
        watched = watch(broker, tmp_path)
        async with served(watched) as visitor, open_client(broker, watched) as client:
            await send(client, "orders", ["one"])
            # The first look may have come before the client made its backlog queues.
            await seen(
                visitor, lambda one: pair_of(one)["backlog"] and not pair_of(one)["backlog"]["missing"]
            )
            calm = (await visitor.ask("metrics"))[1]
            broker["contoso"].faults.set("refuse")
            await send(client, "orders", ["two"])
            await seen(
                visitor,
                lambda one: (
                    pair_of(one)["backlog"]
                    and pair_of(one)["backlog"]["active"]
                    and pair_of(one)["entities"][0]["state"] == "failed_over"
                ),
            )
            outage = (await visitor.ask("metrics"))[1]
    firing = 'ALERTS{alertstate="firing",alertname!="SourceBlind"}'
    run_trials(
        promtool_program,
        tmp_path,
        [
            trial(series_of(calm), expression=firing, expected=[]),
            trial(series_of(outage), expression=firing, expected=["EntityFailedOver", "NobodyDrains"]),
        ],
    )


def series_of(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


PANELS = [
    target["expr"] for panel in GRAFANA["panels"] for target in panel.get("targets", ()) if "expr" in target
]


def test_what_is_written_is_read_again(promtool_program: Path) -> None:
    pair = picture_pair('a "pair"\n', {}, own=IDLE)
    pair["entities"] = [
        {
            **entity("back\\slash", "faulted", 1.5), "sent": {"primary": {"ok": 3}},
            "pings": 0, "late": 0, "without_headroom": 0,
        }
    ]  # fmt: skip
    text = write_metrics({"at": 2.0, "pairs": [pair], "budget": "10"}, {("", "broker"): (1e9 + 0.25, None)})
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    assert found["pairbus_entity_messages", 'a "pair"\n', "back\\slash", "primary", "ok"] == 3
    assert found["pairbus_entity_worst_state", 'a "pair"\n', "back\\slash", "faulted"] == 1
    assert (found["pairbus_budget",], found["pairbus_source_time_seconds", "", "broker"]) == (10, 1e9 + 0.25)
    done = subprocess.run(
        [str(promtool_program), "check", "metrics"], input=text, capture_output=True, timeout=110
    )
    complaints = [line for line in done.stderr.decode().splitlines() if "non-counter" not in line]
    assert (done.returncode in (0, 3), complaints) == (True, [])


def test_what_panels_ask_for_is_promql(promtool_program: Path, tmp_path: Path) -> None:
    """As recording rules, since promtool reads no dashboards; `$pair` stands for names there."""
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$pair", "shop|store")}
        for number, expression in enumerate(PANELS)
    ]
    assert not any("$" in rule["expr"] for rule in rules), "a variable that is not replaced"
    file = tmp_path / "panels.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    promtool(promtool_program, "check", "rules", str(file))


def test_panels_of_grafana_have_a_place_a_name_and_a_source_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in GRAFANA["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, f"{panel['title']} lies upon another panel"
        taken |= cells
    assert len({panel["id"] for panel in GRAFANA["panels"]}) == len(GRAFANA["panels"])
    assert all(panel["title"] for panel in GRAFANA["panels"])
    sources = {panel["datasource"]["uid"] for panel in GRAFANA["panels"] if panel.get("targets")}
    assert sources == {"${datasource}"}


def test_what_rules_and_panels_ask_for_is_there() -> None:
    assert len(PANELS) >= 10
    for expression in [*ALERTS.values(), *PANELS]:
        named = set(re.findall(r"\bpairbus_\w+", expression))
        assert named, expression
        assert named <= NAMES, expression


def test_every_metric_is_documented_and_every_documented_one_is_there() -> None:
    rows = [
        f"| `{one.name}` | {one.kind} | {' '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in FAMILIES
    ]
    found = [line for line in PAGE.splitlines() if line.startswith("| `pairbus_")]
    assert found == rows, "docs/metrics.md should have:\n" + "\n".join(rows)


def test_every_alert_has_a_page_of_the_runbook_and_every_page_an_alert() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK, flags=re.MULTILINE | re.DOTALL))
    assert sections.keys() == ALERTS.keys()
    for alert, text in sections.items():
        for row in ("it means", "look at", "do", "it is over"):
            assert f"| {row} | " in text, alert

    steps = read_runbook()
    for rule in WRITTEN:
        alert, told = rule["alert"], rule["annotations"]
        assert told["description"] == steps[alert]["do"].replace("*", ""), "an alert says what to do"
        assert told["runbook_url"] == f"docs/runbook.md#{alert.lower()}"


def test_what_the_page_begins_with_is_in_the_runbook() -> None:
    source = (ROOT / "src" / "pairbus" / "dashboard" / "headline.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"([A-Z][a-z]+[A-Z]\w+)"', source))
    assert len(named) > 10
    assert named <= ALERTS.keys()


def test_the_page_has_the_runbook_of_the_documentation() -> None:
    kept = ROOT / "src" / "pairbus" / "dashboard" / "runbook.md"
    assert kept.read_text(encoding="utf-8") == RUNBOOK, f"cp docs/runbook.md {kept}"
    found = read_runbook()
    assert found.keys() == ALERTS.keys()
    assert all(list(rows) == ["it means", "look at", "do", "it is over"] for rows in found.values())
    assert not any("](" in text for rows in found.values() for text in rows.values())


def client(name: str, **facts: Any) -> dict[str, Any]:
    return {
        "id": name, "is_gone": False, "written_at": 3.0, "fault": None, "queues": 3, "usable": 3,
        "records_lost": 0, "shipping": None, "spool": None,
    } | facts  # fmt: skip


def entity(path: str, state: str, since: float) -> dict[str, Any]:
    told = {"last_failure": "it is gone", "reason": None, "refuses_since": None}
    return {"path": path, "state": state, "since": since, **told}


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["a"], "a is down"),
        (["a", "b"], "a and b are down"),
        (["a", "b", "c"], "a, b and c are down"),
        ([f"q{number}" for number in range(3000)], "All 3,000 entities are down"),
    ],
)
def test_an_outage_of_thousands_of_entities_is_one_line(paths: list[str], text: str) -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["entities"] = [entity(path, "failed_over", 50.0 + at) for at, path in enumerate(paths)]
    (said,) = headline([pair], budget=None, now=100.0)["said"]
    assert (said["text"], said["since"]) == (text, 50.0)
    assert said["why"] == ("it is gone" if len(paths) < 4 else "q0, q1, q2 and 2,997 more: it is gone")


def test_a_budget_below_a_cent_is_not_told_as_none() -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["money"] = {
        "total": "0.006",
        "per_hour": "0",
        "in_a_day": "0.006",
        "currency": "USD",
        "is_outage": False,
    }
    (said,) = headline([pair], budget=Decimal("0.004"), now=9.0)["said"]
    assert (said["pair"], said["text"]) == ("", "0.0060 USD are spent, above the budget of 0.0040")


def test_a_long_name_loses_its_middle() -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["entities"] = [entity(f"{'north' * 30}-orders", "faulted", 1.0)]
    assert headline([pair], budget=None, now=9.0)["said"][0]["text"] == (
        "northnorthnorthnorth…rthnorthnorth-orders takes no messages: sends fail"
    )
    pair["entities"] = [entity(f"{'north' * 30}-{number}", "faulted", 1.0) for number in range(3)]
    said = headline([pair], budget=None, now=9.0)["said"][0]
    assert said["text"] == "All 3 entities take no messages: sends fail"
    assert said["why"].endswith("rthnorthnorthnorth-2: it is gone")
    pair["waiting"] = {"paths": [{"path": f"{'north' * 30}-orders", "oldest": 0.0}], "dead": []}
    said = headline([pair], budget=None, now=9_000.0)["said"][-1]
    assert said["text"] == "Messages for northnorthnorthnorth…rthnorthnorth-orders wait"


def test_the_page_says_whether_anything_is_lost() -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["entities"] = [entity("a", "failed_over", 1.0)]
    pair["backlog"] = {"active": 941, "dead_letters": 0, "missing": []}
    pair["spool"]["messages"] = 3

    def told() -> str:
        return str(headline([pair], budget=None, now=100.0)["safety"])

    kept = "Nothing that was accepted is lost: 944 messages wait in the backlog and the spools of clients."
    assert told() == kept
    pair["spool"]["damaged"] = 1
    else_kept = kept.replace("Nothing", "Nothing else")
    assert told() == f"A damaged part of the spool may hold messages. {else_kept}"
    pair["spool"]["damaged"] = 0
    pairs = [pair, picture_pair("other", {}, own=IDLE)]
    of_both = headline(pairs, budget=None, now=100.0)["safety"]
    assert of_both == f"{kept} Of other nothing can be said: no client and no backlog is seen."
    pair["entities"] = [entity("a", "faulted", 1.0)]
    assert told() == f"Sends fail now: applications get an error. {kept}"
    pair["entities"] = [entity("a", "healthy", 1.0) | {"refuses_since": 9.0}]
    assert told() == f"Sends fail now: applications get an error. {kept}"
    pair["entities"] = [entity("a", "failed_over", 1.0)]
    # No side takes messages, and the spool has room or none; or the disk has taken nothing at all.
    for held, limit, is_refused in ((50, 100, False), (99, 100, True), (0, 0, True)):
        pair["clients"] = [client("h:1", usable=0, spool={"bytes": held, "limit": limit})]
        assert told().startswith("Sends fail now") == is_refused
        texts = [one["text"] for one in headline([pair], budget=None, now=100.0)["said"]]
        assert ("The spool is full: sends fail" in texts) == is_refused
    pair["verdict"] = {"is_clean": False, "lost": 1, "at": 90.0}
    assert told() == "Keep all records as they are: they tell which messages are missing."
    said = headline([pair], budget=None, now=9.0)["said"][0]
    assert said["text"] == "1 message is lost, says the last verdict"
    assert said["why"].startswith("It was given at 1970-01-01 00:01 UTC.")


def test_what_cannot_wait_is_what_gets_somebody_up() -> None:
    """The page and the alerts agree about what is urgent."""
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["clients"] = [
        client("h:1", fault="closed", usable=0, records_lost=2, shipping={"last_error": "no place"}),
        client("h:4", spool={"bytes": 51, "limit": 100}),
        client("h:2", is_gone=True),
        client("h:3", is_gone=True),
    ]
    refusing = entity("c", "healthy", 3.0) | {"refuses_since": 9.0}
    pair["entities"] = [entity("a", "faulted", 1.0), entity("b", "failed_over", 2.0), refusing]
    pair["backlog"] = {"active": 4, "dead_letters": 1, "missing": ["q"]}
    pair["waiting"] = {"paths": [{"path": "b", "oldest": 0.0}], "dead": [{"oldest": 4.0}, {"oldest": 2.0}]}
    pair["drain"] |= {"state": "paused", "pumps": 1, "waiting": 4}
    pair["spool"] |= {"refused": 1, "damaged": 1, "bytes_left": 1}
    pair["verdict"] = {"is_clean": False, "lost": 1, "at": 1.0}
    pair["sources"] = {"status files": {"at": None, "error": "gone"}, "spool": {"at": 5.0, "error": "gone"}}
    pair["money"] = {
        "currency": "USD", "total": "9", "per_hour": "1", "in_a_day": "33", "is_outage": True
    }  # fmt: skip
    found = headline([pair], budget=Decimal(10), now=10_000.0)["said"]
    urgent = {one["alert"] for one in found if one["level"] == "bad"}
    assert {one["alert"] for one in found} | {"DashboardGone", "BudgetSpent"} == ALERTS.keys()
    pages = {rule["alert"] for rule in WRITTEN if rule["labels"]["severity"] == "page"}
    assert urgent == pages
    texts = {one["alert"]: one["text"] for one in found}
    assert texts["ClientGone"] == "h:2 and h:3 ended unclosed, or cannot write to the disk"
    assert texts["NobodyDrains"] == "4 messages wait in the backlog, and the drain is paused"
    since = {one["alert"]: one["since"] for one in found if one["since"] is not None}
    assert since == {
        "EntityFaulted": 1.0, "EntityRefuses": 9.0, "EntityFailedOver": 2.0, "BacklogOld": 0.0,
        "DeadLetters": 2.0, "ClientGone": 3.0, "SourceBlind": 5.0,
    }  # fmt: skip


def test_a_budget_is_that_of_all_pairs() -> None:
    pairs = []
    for name in ("shop", "store"):
        pair = picture_pair(name, {}, own=IDLE)
        pair["money"] = {
            "currency": "USD", "total": "6.00", "per_hour": "0", "in_a_day": "6", "is_outage": True
        }  # fmt: skip
        pairs.append(pair)
    assert headline(pairs[:1], budget=Decimal(10), now=0.0)["said"] == []
    (said,) = headline(pairs, budget=Decimal(10), now=0.0)["said"]
    assert (said["alert"], said["pair"]) == ("BudgetSpent", "")
    assert said["text"] == "12.00 USD are spent, above the budget of 10.00"


def test_without_a_pair_nothing_is_said_about_messages() -> None:
    found = headline([], budget=None, now=0.0)
    assert (found["level"], found["said"]) == ("good", [])
    assert found["safety"] == "Only embedded namespaces are watched: --pair NAME shows a pair beside them."


def test_a_pair_that_nobody_has_seen_yet_is_no_alarm() -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    found = headline([pair], budget=None, now=0.0)
    assert (found["level"], found["said"]) == ("good", [])
    assert found["safety"] == "No client and no backlog is seen, so nothing can be said about messages."


def test_what_clients_that_are_gone_left_is_told_of_messages() -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["spool"] |= {"bytes_left": 7}
    safety = headline([pair], budget=None, now=0.0)["safety"]
    assert safety == "No client and no backlog is seen, but the spool of clients that are gone."
    pair["backlog"] = {"active": 0, "dead_letters": 0, "missing": []}
    safety = headline([pair], budget=None, now=0.0)["safety"]
    assert safety == (
        "Nothing that was accepted is lost. What clients that are gone left in the spool waits until it is "
        "replayed."
    )


@pytest.mark.parametrize(
    ("age", "pumps", "state", "said"),
    [
        (60.0, 0, "healthy", ["NobodyDrains"]),
        (60.0, 1, "healthy", []),
        (60.0, 0, "failed_over", ["EntityFailedOver"]),
        (601.0, 0, "failed_over", ["EntityFailedOver", "NobodyDrains"]),
        (1801.0, 1, "healthy", ["BacklogOld"]),
        (1801.0, 0, "healthy", ["NobodyDrains", "BacklogOld"]),
    ],
)
def test_messages_that_are_stranded_are_in_the_headline(
    age: float, pumps: int, state: str, said: list[str]
) -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["backlog"] = {"active": 3, "dead_letters": 0, "missing": []}
    pair["waiting"] = {"paths": [{"path": "orders", "oldest": 10_000.0 - age}]}
    pair["drain"]["pumps"] = pumps
    pair["entities"] = [entity("orders", state, 9_000.0)]
    pair["drain"]["trouble"] = "No space left on device"  # of a drain that has failed
    found = headline([pair], budget=None, now=10_000.0)["said"]
    assert [one["alert"] for one in found] == said
    assert all(one["why"] for one in found if one["alert"] == "NobodyDrains")


@pytest.mark.parametrize("source", ["backlog", "waiting"])
def test_nobody_is_told_to_drain_what_cannot_be_reached(source: str) -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    pair["backlog"] = {"active": 3, "dead_letters": 0, "missing": []}
    pair["sources"] = {source: {"at": 9_000.0, "error": "refused"}}
    assert [one["alert"] for one in headline([pair], budget=None, now=10_000.0)["said"]] == ["SourceBlind"]


@pytest.mark.parametrize(
    ("total", "per_hour", "is_outage", "said"),
    [
        ("90.00", "5.00", True, ["BudgetForecast"]),
        ("90.00", "5.00", False, []),
        ("90.00", "0.10", True, []),
        ("101.00", "5.00", True, ["BudgetSpent"]),
    ],
)
def test_an_outage_that_will_pass_the_budget_is_in_the_headline_before(
    total: str, per_hour: str, is_outage: bool, said: list[str]
) -> None:
    pair = picture_pair(PAIR, {}, own=IDLE)
    in_a_day = str(Decimal(total) + 24 * Decimal(per_hour))
    pair["money"] = {
        "currency": "USD", "total": total, "per_hour": per_hour, "in_a_day": in_a_day, "is_outage": is_outage,
    }  # fmt: skip
    found = headline([pair], budget=Decimal(100), now=0.0)["said"]
    assert [one["alert"] for one in found] == said
    if "BudgetForecast" in said:
        assert "in 2.0 h" in found[0]["text"]


@pytest.mark.parametrize("view", ["overview", "backlog"])
def test_pictures_of_the_page_are_in_the_documents(view: str) -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
    picture = f"dashboard-{view}.png"
    assert picture in page
    assert (ROOT / "docs" / picture).read_bytes().startswith(b"\x89PNG")
