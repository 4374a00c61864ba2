"""The extender's own metrics, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from ..cluster.cluster import Cluster
from ..follow.follow import Follower

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    def __init__(
        self, cluster: Cluster, followers: Sequence[Follower], why_not: Callable[[], str]
    ) -> None:
        self._cluster, self._followers, self._why_not = cluster, followers, why_not
        self._registry = CollectorRegistry()
        self.seconds = Histogram(
            "vcuda_extender_call_seconds",
            "How long the scheduler's calls took.",
            ["verb"],
            registry=self._registry,
            buckets=_SECONDS,
        )
        self.failures = Counter(
            "vcuda_extender_failures_total",
            "The scheduler's calls that were answered with an error.",
            ["verb"],
            registry=self._registry,
        )
        self._registry.register(self)

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges; prometheus_client calls this for each page."""
        now = time.monotonic()
        with self._cluster.lock:
            quotas, trouble = self._cluster.quota.report(), self._cluster.quota.trouble
            counts = {
                "nodes": len(self._cluster.nodes),
                "pods": len(self._cluster.pods),
                "assumed_pods": len(self._cluster.assumed),
            }
        for name, value in counts.items():
            yield GaugeMetricFamily(f"vcuda_extender_{name}", f"Known {name}.", value=value)
        binds = float(not self._why_not())
        yield GaugeMetricFamily("vcuda_extender_leader", "Whether this one binds.", value=binds)
        silence = max(now - follower.heard for follower in self._followers)
        yield GaugeMetricFamily(
            "vcuda_extender_api_silence_seconds",
            "Since when nothing was heard of the API server, of pods or of nodes.",
            value=silence,
        )
        yield from _quotas(quotas, trouble)


def _quotas(rows: Sequence[Mapping[str, Any]], trouble: str) -> Iterator[GaugeMetricFamily]:
    """Return the quota gauges, only for namespaces with a quota, to bound the number of series."""
    text = "Whether quotas are known; while they are not, no pod gets a GPU."
    yield GaugeMetricFamily("vcuda_extender_quota_known", text, value=float(not trouble))
    for key, meaning in (("limit", "may have"), ("used", "have")):
        family = GaugeMetricFamily(
            f"vcuda_extender_quota_{key}_cards",
            f"Cards of this model that the namespace's pods {meaning}.",
            labels=("namespace", "model"),
        )
        for row in rows:
            if row["limit"] is not None:
                family.add_metric((row["namespace"], row["model"]), row[key])
        yield family
