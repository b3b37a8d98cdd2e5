"""Numbers for Prometheus, counted from the engine's events.

No label holds a value of which there may be many: no instance, no path, no tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agiwo.engine.events import Event, Happening
from agiwo.engine.usage import OK, usage_rows
from agiwo.errors import TREE
from agiwo.machine.reports import Failed, NotBegun, Stopped
from agiwo.ports.limits import LimitSource

SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0)
COMMIT_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Metrics:
    """The engine's numbers in `registry`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry}
        self._ended = Counter("agiwo_instances_ended", "Instances that have ended, by workflow and status.", ("workflow", "status"), **make)
        self._life = Histogram("agiwo_instance_seconds", "From trigger to end.", ("workflow",), buckets=SECONDS, **make)
        self._attempts = Counter("agiwo_attempts", "Calls that have an outcome, by tool.", ("kind", "tool", "outcome"), **make)
        self._calls = Histogram("agiwo_attempt_seconds", "Duration of calls, by tool.", ("kind", "tool"), buckets=SECONDS, **make)
        self._fenced = Counter("agiwo_attempts_fenced", "Calls that did not stop within their grace.", **make)
        self._records = Counter("agiwo_records", "Records of the history, by type.", ("type",), **make)
        self._batches = Histogram("agiwo_write_batch_size", "Instances in one commit.", buckets=BATCHES, **make)
        self._commits = Histogram("agiwo_commit_seconds", "Duration of one commit.", buckets=COMMIT_SECONDS, **make)
        self._claimed = Counter("agiwo_instances_claimed", "Instances taken over from the storage.", **make)
        self._let_go = Counter("agiwo_instances_let_go", "Instances that left memory before their end, by reason.", ("reason",), **make)
        self._aside = Counter("agiwo_instances_set_aside", "Instances that wait for a person to look at them.", **make)
        self._refused = Counter("agiwo_writes_refused", "Writes that the database could not hold.", **make)
        self._lost = Counter("agiwo_store_lost", "How often the storage went away, by who noticed.", ("place",), **make)
        self._deaths = Counter("agiwo_node_declared_dead", "How often this node was declared dead by another.", **make)
        self._faults = Counter("agiwo_loop_failures", "Mistakes in our own loops.", ("loop",), **make)
        self._deliveries = Counter("agiwo_deliveries", "Outbox deliveries.", ("kind", "outcome"), **make)
        self._model_calls = Counter("agiwo_model_calls", "Calls of models, by profile and outcome.", ("profile", "outcome"), **make)
        self._model_tokens = Counter("agiwo_model_tokens", "Tokens of models: input, output, cached.", ("profile", "kind"), **make)
        self._model_cost = Counter("agiwo_model_cost_usd", "Known cost of models in US dollars.", ("profile",), **make)
        self._counting: dict[Happening, Callable[[Event], None]] = {
            Happening.ENDED: self._on_ended,
            Happening.ATTEMPT_RETURNED: self._on_attempt,
            Happening.ATTEMPT_FENCED: lambda event: self._fenced.inc(),
            Happening.COMMITTED: self._on_committed,
            Happening.BATCH_WRITTEN: self._on_batch,
            Happening.CLAIMED: lambda event: self._claimed.inc(event.data["count"]),
            Happening.LET_GO: lambda event: self._let_go.labels(event.data["reason"]).inc(),
            Happening.SET_ASIDE: lambda event: self._aside.inc(),
            Happening.REFUSED: lambda event: self._refused.inc(),
            Happening.STORE_LOST: lambda event: self._lost.labels(event.data["place"]).inc(),
            Happening.DECLARED_DEAD: lambda event: self._deaths.inc(),
            Happening.LOOP_FAILED: lambda event: self._faults.labels(event.data["loop"]).inc(),
            Happening.DELIVERED: lambda event: self._deliveries.labels(event.data["kind"], "delivered").inc(),
            Happening.NOT_DELIVERED: self._on_not_delivered,
        }

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a number that is read when it is asked for: instances held, writes waiting."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def limits(self, source: LimitSource) -> None:
        """Show every limit of this node, what is taken of it and what waits for it, as it stands when it is asked for."""
        self.registry.register(_Limits(source))

    def observe(self, event: Event) -> None:
        """Count an engine's event."""
        count = self._counting.get(event.name)
        if count is not None:
            count(event)

    def _on_ended(self, event: Event) -> None:
        workflow = event.where.workflow if event.where is not None else ""
        self._ended.labels(workflow, event.data["status"]).inc()
        self._life.labels(workflow).observe(max(0.0, event.data["seconds"]))

    def _on_attempt(self, event: Event) -> None:
        outcome = event.data["outcome"]
        stopped = isinstance(outcome, Stopped | NotBegun)
        word = "stopped" if stopped else "succeeded"
        if isinstance(outcome, Failed):
            # Tools name errors of their own, of which there may be any number.
            word = outcome.failure.type if outcome.failure.type in TREE else "ToolError"
        kind, tool = event.data["kind"], event.data.get("tool") or ""
        self._attempts.labels(kind, tool, word).inc()
        self._calls.labels(kind, tool).observe(event.data["seconds"])

    def _on_committed(self, event: Event) -> None:
        for record in event.data["records"]:
            self._records.labels(record.type).inc()
        for row in usage_rows(event.data["records"], ""):
            # A tool's own types are many; a model's are those of the tree.
            self._model_calls.labels(row.profile, row.status if row.status in TREE or row.status == OK else "ToolError").inc()
            tokens = {"input": row.input_tokens, "output": row.output_tokens, "cache_read": row.cache_read_tokens}
            for kind, count in tokens.items():
                self._model_tokens.labels(row.profile, kind).inc(count or 0)
            self._model_cost.labels(row.profile).inc((row.cost_micro_usd or 0) / 1e6)

    def _on_batch(self, event: Event) -> None:
        self._batches.observe(event.data["writes"])
        self._commits.observe(event.data["seconds"])

    def _on_not_delivered(self, event: Event) -> None:
        self._deliveries.labels(event.data["kind"], "gave_up" if event.data["gave_up"] else "put_off").inc()


class _Limits(Collector):
    """Limits as three gauges, by name."""

    def __init__(self, source: LimitSource) -> None:
        self._source = source

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("agiwo_limit", "What this node may have at once, by limit.", labels=("name",))
        yield GaugeMetricFamily("agiwo_limit_in_use", "What is taken of a limit on this node.", labels=("name",))
        yield GaugeMetricFamily("agiwo_limit_queued", "What waits for a limit on this node.", labels=("name",))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        shown = list(self.describe())
        for state in self._source():
            for family, value in zip(shown, (state.limit, state.in_use, state.queued), strict=True):
                if value is not None:
                    family.add_metric((state.name,), value)
        yield from shown
