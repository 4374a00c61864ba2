"""The metrics page, written with Prometheus's own client library.

Container names come from engines and may hold any text: long names are cut, and each unprintable
character becomes a question mark.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as open_metrics

from vcuda_hook.advice.recommend import Advice
from vcuda_hook.advice.workload import Workload
from vcuda_oci.ledger import events
from vcuda_oci.model import names

from . import metrics
from .event_counts import KNOWN_KINDS, KNOWN_REASONS, Counts, Start
from .metrics import Metric
from .node_state import View

# The format that generate_latest writes when no name needs escaping, in every library version.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = open_metrics.CONTENT_TYPE_LATEST
Advised = Sequence[tuple[Workload, Advice]]
_MOST_LABEL = 256
_MOST_EXEMPLAR = 128  # characters in an exemplar's label names and values. Source: OpenMetrics 1.0


# Libraries newer than Debian 12's check every label name of every sample for escaping, 12,000 times
# on a full node's page. A cache checks each of our few names once.
if hasattr(open_metrics, "escape_label_name"):
    open_metrics.escape_label_name = functools.lru_cache(64)(open_metrics.escape_label_name)


def _collector(families: Iterable[Family]) -> Any:
    """Metric families in the form that generate_latest takes."""
    return SimpleNamespace(collect=lambda: families)


class Pages:
    """Renders the text page; reuses the text of each family with unchanged samples.

    Limits rarely change, so most of a page is reused.
    """

    def __init__(self) -> None:
        self._rendered: dict[str, tuple[list[Any], bytes]] = {}

    def text(self, view: View, counts: Counts, advised: Advised = ()) -> bytes:
        return b"".join(map(self._text, _families(view, counts, advised)))

    def _text(self, family: Family) -> bytes:
        samples, text = self._rendered.get(family.name, ([], b""))
        if not text or samples != family.samples:
            text = generate_latest(_collector([family]))
            self._rendered[family.name] = family.samples, text
        return text


def open_metrics_page(view: View, counts: Counts, advised: Advised = ()) -> bytes:
    """The page in OpenMetrics, the only format with exemplars."""
    families = _collector(_families(view, counts, advised))
    page: bytes = open_metrics.generate_latest(families)  # type: ignore[no-untyped-call]
    return page


def _families(view: View, counts: Counts, advised: Advised) -> Iterator[Family]:
    yield from _node(view, counts)
    yield from _gpus(view)
    yield from _tenants(view)
    yield from _workloads(advised)
    yield from _gpumanager(view)


def _node(view: View, counts: Counts) -> Iterator[Family]:
    yield _family(metrics.BUILD, [((names.VERSION,), {"": 1})])
    yield _family(metrics.BROKEN, [((), {"": len(view.broken)})])
    kinds, reasons = {**KNOWN_KINDS, **counts.kinds}, {**KNOWN_REASONS, **counts.reasons}
    for metric, by_label in ((metrics.EVENTS, kinds), (metrics.REFUSALS, reasons)):
        yield _family(metric, [((of,), {"": n}) for of, n in sorted(by_label.items())])
    yield _family(metrics.BYPASSES, [((), {"": kinds[events.BYPASS_FOUND]})])
    below = 0
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    bounds = (*map(str, counts.BOUNDS), "+Inf")
    for bound, count, last in zip(bounds, counts.starts, counts.last_starts):
        below += count
        exemplar = _exemplar(last)
        buckets.append((bound, below, exemplar) if exemplar else (bound, below))
    start = metrics.START
    yield HistogramMetricFamily(
        start.name, start.help, buckets=buckets, sum_value=counts.start_seconds
    )


def _exemplar(last: Start | None) -> Exemplar | None:
    if last is None or len("allocation" + last.allocation) > _MOST_EXEMPLAR:
        return None
    return Exemplar({"allocation": last.allocation}, last.seconds, last.time)


def _gpus(view: View) -> Iterator[Family]:
    gpus = [(_bounded(gpu["uuid"], gpu["name"], gpu["model"]), gpu) for gpu in view.gpus or []]
    return (_family(metric, gpus) for metric in metrics.GPU_METRICS)


def _tenants(view: View) -> Iterator[Family]:
    tenants = []
    for entry in view.tenants:
        pod = entry["pod"] or {"container": entry["name"]}
        of_pod = [pod.get(key, "") for key in ("namespace", "name", "container")]
        tenants.append((_bounded(entry["id"], *of_pod, entry["gpu_uuid"]), entry))
    waited = [
        ((*labels, reason), {"": entry[key]})
        for labels, entry in tenants
        for reason, key in metrics.WAIT_REASONS
    ]
    images = [
        ((*labels, *_bounded(entry["image"])), {"": 1})
        for labels, entry in tenants
        if entry["image"]
    ]
    isolations = [
        ((*labels, *_bounded(entry["isolation"], entry["instance_of"] or "")), {"": 1})
        for labels, entry in tenants
    ]
    yield from (_family(metric, tenants) for metric in metrics.TENANT_METRICS)
    yield _family(metrics.WAITED, waited)
    yield _family(metrics.INFO, images)
    yield _family(metrics.ISOLATION, isolations)


def _workloads(advised: Advised) -> Iterator[Family]:
    known = [(_bounded(*workload), advice._asdict()) for workload, advice in advised]
    return (_family(metric, known) for metric in metrics.RECOMMENDED)


def _gpumanager(view: View) -> Iterator[Family]:
    """GPUManager's metrics: usage per GPU and in total, requests in total only."""
    owners = _by_owner(view)
    for metric in metrics.GPUMANAGER_METRICS:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        each = metric in (metrics.UTILIZATION, metrics.MEMORY)
        for owner, entries in owners.items():
            figures = [(entry["gpu_name"], metric.value(entry)) for entry in entries]
            known = [(name, figure) for name, figure in figures if figure is not None]
            samples = [(f"gpu{name}", of) for name, of in known if name is not None and each]
            if known:
                samples.append(("total", sum(figure for _, figure in known)))
            for of, figure in samples:
                family.add_metric((*owner, of), figure)
        yield family


def _by_owner(view: View) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """Tenant entries by pod and container.

    A recreated pod may have the same name as one with a remaining record: the newer record wins.
    """
    owners: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in sorted(view.tenants, key=lambda entry: (entry["created"], entry["id"])):
        pod = entry["pod"] or {"container": entry["name"]}
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
    """Cut each text to _MOST_LABEL characters and replace unprintable characters with "?"."""
    cut = (text[:_MOST_LABEL] for text in texts)
    return tuple(
        text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
        for text in cut
    )
