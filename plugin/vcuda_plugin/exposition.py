"""The page that Prometheus reads, by its own client library.

Names of containers come from engines and may hold anything: they are bounded, and what cannot be
seen is a question mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from vcuda_hook import views
from vcuda_oci import names

from . import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric as Family

    from .event_counts import Counts
    from .metrics import Metric
    from .node_look import View

# What generate_latest writes where no name needs more, whatever the library's newest version is.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_LABEL = 256


class Page:
    """One look as prometheus_client asks its collectors."""

    def __init__(self, view: View, counts: Counts) -> None:
        self._view, self._counts = view, counts

    def collect(self) -> Iterator[Family]:
        yield from _node(self._view, self._counts)
        yield from _gpus(self._view)
        yield from _tenants(self._view)
        yield from _gpumanager(self._view)


def page(view: View, counts: Counts) -> bytes:
    registry = CollectorRegistry()
    registry.register(Page(view, counts))
    return generate_latest(registry)


def _node(view: View, counts: Counts) -> Iterator[Family]:
    yield _family(metrics.BUILD, [((names.VERSION,), {"": 1})])
    yield _family(metrics.BROKEN, [((), {"": len(view.broken)})])
    for metric, by_label in ((metrics.EVENTS, counts.kinds), (metrics.REFUSALS, counts.reasons)):
        yield _family(metric, [((of,), {"": n}) for of, n in sorted(by_label.items())])
    yield _family(metrics.BYPASSES, [((), {"": counts.bypasses})])
    below, buckets = 0, []
    for bound, count in zip((*map(str, counts.BOUNDS), "+Inf"), counts.starts):
        below += count
        buckets.append((bound, below))
    start = metrics.START
    yield HistogramMetricFamily(
        start.name, start.help, buckets=buckets, sum_value=counts.start_seconds
    )


def _gpus(view: View) -> Iterator[Family]:
    gpus = [
        (_bounded(gpu["uuid"], str(gpu["index"]), gpu["model"]), gpu) for gpu in view.gpus or []
    ]
    return (_family(metric, gpus) for metric in metrics.GPU_METRICS)


def _tenants(view: View) -> Iterator[Family]:
    tenants = []
    for entry in view.tenants:
        pod = entry["pod"] or {}
        of_pod = [pod.get(key, "") for key in ("namespace", "name", "container")]
        tenants.append((_bounded(entry["id"], *of_pod, entry["gpu_uuid"]), entry))
    return (_family(metric, tenants) for metric in metrics.TENANT_METRICS)


def _gpumanager(view: View) -> Iterator[Family]:
    """Of what is used each GPU's figure and their sum, of what is asked the sum."""
    owners = _by_owner(view)
    for metric in metrics.GPUMANAGER_METRICS:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        each = metric in (metrics.UTILIZATION, metrics.MEMORY)
        for owner, entries in owners.items():
            figures = {entry["gpu_index"]: metric.value(entry) for entry in entries}
            known = {index: figure for index, figure in figures.items() if figure is not None}
            samples = [(f"gpu{i}", known[i]) for i in known if i is not None] if each else []
            if known:
                samples.append(("total", sum(known.values())))
            for of, figure in samples:
                family.add_metric((*owner, of), figure)
        yield family


def _by_owner(view: View) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """A pod that is made anew may meet the record of the one before: the newer counts."""
    owners: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in sorted(view.tenants, key=lambda entry: (entry["created"], entry["id"])):
        pod = entry["pod"] or {"container": views.short_id(entry["id"])}
        of_pod = [pod.get(key, "") for key in ("name", "namespace", "container")]
        owner = _bounded(*of_pod[:2], view.node, of_pod[2])
        if owner in owners and owners[owner][0]["id"] == entry["id"]:
            owners[owner].append(entry)
        else:
            owners[owner] = [entry]
    return owners


def _family(metric: Metric, entries: Iterable[tuple[Sequence[str], Mapping[str, Any]]]) -> Family:
    made = CounterMetricFamily if metric.kind == metrics.COUNTER else GaugeMetricFamily
    family = made(metric.name, metric.help, labels=metric.labels)
    for labels, entry in entries:
        value = metric.value(entry)
        if value is not None:
            family.add_metric(labels, value)
    return family


def _bounded(*texts: str) -> tuple[str, ...]:
    """Of a length that is bounded, and without what no reader of pages expects in a name."""
    cut = (text[:_MOST_LABEL] for text in texts)
    return tuple(
        text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
        for text in cut
    )
