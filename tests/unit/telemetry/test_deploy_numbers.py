"""The alert rules and the dashboard in deploy/ ask only for numbers that the service shows, by labels that these have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest

from agiwo.engine.events import Event, Happening
from agiwo.machine.commands import Record
from agiwo.machine.reports import Succeeded
from agiwo.ports.limits import LimitState
from agiwo.telemetry.metrics import Metrics

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
BOARD: dict[str, Any] = json.loads((DEPLOY / "dashboard.json").read_text())
#: What Prometheus itself adds to every series.
ADDED = {"instance", "job"}


def shown() -> dict[str, set[str]]:
    """Every series of the exposition with its labels, each having been counted once."""
    metrics = Metrics()
    metrics.limits(lambda: [LimitState("instances", "node", 10, 1, 0)])
    for name in ("instances_held", "circuits_open", "redis_up", "redis_gap_seconds", "shard_groups_held"):
        metrics.gauge(f"agiwo_{name}", "One that wiring shows.", lambda: 1.0)
    calls = {"calls": [{"profile": "p", "usage": {}, "cost_micro_usd": 1}]}
    for name, data in (
        (Happening.ENDED, {"status": "SUCCESS", "seconds": 1.0}),
        (Happening.ATTEMPT_RETURNED, {"kind": "tool_call", "tool": "t", "outcome": Succeeded(1), "seconds": 1.0}),
        (Happening.COMMITTED, {"records": [Record(1, "step.succeeded", 1.0, "a", 1, None, calls)]}),
        (Happening.LET_GO, {"reason": "parked"}),
        (Happening.STORE_LOST, {"place": "writer"}),
        (Happening.LOOP_FAILED, {"loop": "claims"}),
        (Happening.DELIVERED, {"kind": "notice"}),
    ):
        metrics.observe(Event(name, 1.0, data=data))
    out: dict[str, set[str]] = {"up": set()}
    for name, labels in re.findall(r"^(agiwo_\w+)(?:\{(.*?)\})? ", generate_latest(metrics.registry).decode(), re.MULTILINE):
        out.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return out


def asked() -> list[tuple[str, str, str]]:
    """Every expression of both files with what it is for, and the text beside it."""
    rules = [(rule["alert"], rule["expr"], rule["annotations"]["summary"]) for rule in RULES]
    return rules + [(panel["title"], target["expr"], target["legendFormat"]) for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_number_that_is_asked_for_is_shown_and_has_the_labels() -> None:
    series = shown()
    for what, expression, text in asked():
        names = set(re.findall(r"\b(agiwo_\w+|up)\b(?=[\s{[)]|$)", expression))
        assert names, what
        assert names <= series.keys(), f"{what}: {names - series.keys()}"
        known = set.union(*(series[name] for name in names)) | ADDED
        used = set(re.findall(r"\{\{ ?\$?(?:labels\.)?(\w+) ?\}\}", text)) | set(re.findall(r"(\w+)(?:=|!=|=~)\"", expression))
        used |= {label.strip() for group in re.findall(r"by \((.*?)\)", expression) for label in group.split(",")}
        assert used <= known, f"{what}: {used - known}"


def test_every_panel_and_alert_has_a_name_of_its_own() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"]) > 10
    assert all(rule["labels"]["severity"] in ("warning", "critical") for rule in RULES)
