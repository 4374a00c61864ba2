"""The node's Prometheus metrics: name, kind, help and labels of each.

A test compares them with docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vcuda_hook.live import turn_figures, views
from vcuda_oci.placement.eligible import DRAINED

_Value = Callable[[Mapping[str, Any]], float | None]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
_MIB = 1 << 20

TENANT_LABELS = ("allocation", "namespace", "pod", "container", "gpu")
WORKLOAD_LABELS = ("kind", "namespace", "workload", "container", "image")
GPU_LABELS = ("gpu", "index", "model")
# Labels of GPUManager's metrics. Source: tkestack/gpu-manager, pkg/services/display.
OWNER_LABELS = ("pod_name", "namespace", "node", "container_name")


class Metric(NamedTuple):
    """One metric. value: computes it from an entry of the view; None (unknown) gives no sample."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    value: _Value


def _figure(key: str, part: float = 1) -> _Value:
    def value(entry: Mapping[str, Any]) -> float | None:
        figure = entry[key]
        return None if figure is None else figure * part

    return value


def _kind(name: str) -> str:
    """The kind of a metric of vcuda's own by Prometheus's rule for names."""
    return COUNTER if name.endswith("_total") else GAUGE


def _of_node(name: str, help: str, *labels: str) -> Metric:
    """A metric of the node; its entry is {"": value}."""
    return Metric(f"vcuda_{name}", _kind(name), help, labels, _figure(""))


def _of_gpu(name: str, help: str, value: _Value | None = None) -> Metric:
    """value: by default the entry's figure of the metric's name."""
    return Metric(f"vcuda_gpu_{name}", _kind(name), help, GPU_LABELS, value or _figure(name))


def _of_sensor(name: str, help: str) -> Metric:
    key = name.removesuffix("_total")
    return _of_gpu(name, help, lambda entry: entry["sensors"][key])


def _of_mps(key: str, help: str) -> Metric:
    """Of GPUs with containers under MPS."""

    def value(entry: Mapping[str, Any]) -> float | None:
        figure = entry["mps"] and entry["mps"][key]
        return None if figure is None else float(figure)

    return _of_gpu(f"mps_{key}", help, value)


def _of_tenant(name: str, help: str, value: _Value | None = None) -> Metric:
    """value: by default the entry's figure of the metric's name."""
    value = value or _figure(name)
    return Metric(f"vcuda_container_{name}", _kind(name), help, TENANT_LABELS, value)


def _of_tenant_and(name: str, help: str, *labels: str) -> Metric:
    """A metric of a tenant with more labels; its entry is {"": value}."""
    labels = (*TENANT_LABELS, *labels)
    return Metric(f"vcuda_container_{name}", _kind(name), help, labels, _figure(""))


def _recommended(name: str, help: str, key: str, part: float = 1) -> Metric:
    return Metric(f"vcuda_recommended_{name}", GAUGE, help, WORKLOAD_LABELS, _figure(key, part))


def _gpumanagers(name: str, help: str, label: str, value: _Value) -> Metric:
    return Metric(f"container_{name}", GAUGE, help, (*OWNER_LABELS, label), value)


def _is_healthy(gpu: Mapping[str, Any]) -> float:
    return float(views.condition(gpu) in ("", DRAINED))


BUILD = _of_node("build_info", "1; the version that runs.", "version")
BROKEN = _of_node("broken_records", "Records that are not whole: what they hold is unknown.")
EVENTS = _of_node("events_total", "What happened to allocations, by kind.", "kind")
REFUSALS = _of_node("refusals_total", "Containers refused, by reason.", "reason")
BYPASSES = _of_node("bypass_found_total", "Times a container was seen round the shim.")
_START_HELP = "Time that giving a container its share took."
START = Metric("vcuda_start_seconds", HISTOGRAM, _START_HELP, (), _figure(""))
NODE_METRICS = (BUILD, BROKEN, EVENTS, REFUSALS, BYPASSES, START)

GPU_METRICS = (
    _of_gpu("healthy", "0 while it is unhealthy.", _is_healthy),
    _of_gpu(
        "drained",
        "1 while it is drained: it gets no new containers.",
        lambda gpu: float(views.is_drained(gpu)),
    ),
    _of_gpu("memory_bytes", "Memory that it has."),
    _of_gpu(
        "memory_promised_bytes", "Its tenants' limits, summed.", _figure("promised_memory_bytes")
    ),
    _of_gpu(
        "compute_reserved_ratio",
        "Part of its time that is reserved for tenants.",
        lambda gpu: (100 - gpu["free_core_percent"]) / 100,
    ),
    _of_gpu("tenants", "Containers and named slices that hold a share of it."),
    _of_gpu(
        "lost_seconds_total",
        "Time in turns of its containers in which it was idle.",
        _figure("lost_seconds"),
    ),
    _of_gpu("instances", "GPU instances on it that were created for one container each."),
    _of_gpu(
        "instances_left_over",
        "Those of them that no share names any more, and that are not destroyed yet.",
    ),
    _of_mps("serves", "1 while the MPS daemon and server of its containers run, else 0."),
    _of_mps(
        "fault", "1 after a fault that ended the work of all MPS clients, until they have ended."
    ),
    _of_mps("clients", "Processes that are clients of MPS."),
    _of_sensor("temperature_celsius", "Temperature of the chip."),
    _of_sensor("power_watts", "Power that it draws."),
    _of_sensor("power_limit_watts", "Power that it may draw."),
    _of_sensor("sm_clock_hertz", "Clock of its multiprocessors."),
    _of_sensor("memory_clock_hertz", "Clock of its memory."),
    _of_sensor("pcie_sent_bytes_per_second", "What it sends by PCIe, over 20 ms."),
    _of_sensor("pcie_received_bytes_per_second", "What it receives by PCIe, over 20 ms."),
    _of_sensor("nvlink_sent_bytes_total", "What it has sent by all its NVLinks."),
    _of_sensor("nvlink_received_bytes_total", "What it has received by all its NVLinks."),
)

TENANT_METRICS = (
    _of_tenant("memory_limit_bytes", "Memory that it may hold.", _figure("memory_bytes")),
    _of_tenant("memory_used_bytes", "Memory that it holds, with what its contexts are charged."),
    _of_tenant(
        "driver_memory_limit_bytes",
        "The driver's own limit of its cgroup, where the driver has one.",
        _figure("driver_limit_bytes"),
    ),
    _of_tenant(
        "driver_memory_used_bytes",
        "What the driver counts against that limit, contexts and code too.",
        _figure("driver_used_bytes"),
    ),
    _of_tenant("memory_refusals_total", "Allocations refused at its limit.", _figure("refusals")),
    _of_tenant(
        "memory_full_gpu_total",
        "Times that the GPU had no memory left within its share, so that others were asked.",
        _figure("full_gpu"),
    ),
    _of_tenant(
        "compute_reserved_ratio",
        "Part of the GPU's time that is reserved for it.",
        _figure("core_percent", 0.01),
    ),
    _of_tenant(
        "compute_ceiling_ratio",
        "Part of the GPU's time that it gets at most.",
        _figure("core_ceiling_percent", 0.01),
    ),
    _of_tenant(
        "compute_ratio",
        "Part of the GPU's time that it used since the previous sample.",
        _figure("core_used_percent", 0.01),
    ),
    _of_tenant("compute_seconds_total", "GPU time that it used.", _figure("busy_seconds")),
    _of_tenant(
        "throttled_seconds_total",
        "Time that its launches waited for their share.",
        _figure("waited_seconds"),
    ),
    _of_tenant(
        "gpu_held_seconds_total",
        "Time in which it had its turn and no other container could use the GPU.",
        _figure("held_seconds"),
    ),
    _of_tenant(
        "gpu_lost_seconds_total",
        "Part of the time that it held in which the GPU was idle.",
        _figure("lost_seconds"),
    ),
    _of_tenant(
        "overrun_seconds",
        "The most GPU time that it took at once beyond its share, before it had to wait.",
    ),
    _of_tenant(
        "suspended",
        "1 while it is off the GPU, which others may use, else 0.",
        lambda entry: float(views.is_off(entry)),
    ),
    _of_tenant(
        "suspended_bytes",
        "Memory that it holds in the host's memory, also by checkpoints of its own user.",
        lambda entry: float(
            entry["suspension"]["bytes"] if views.is_off(entry) else entry["memory_off_bytes"] or 0
        ),
    ),
    _of_tenant(
        "suspended_since_seconds",
        "When it was suspended, in seconds since 1970; 0 while it is not.",
        lambda entry: float(entry["suspension"]["since"]) if views.is_off(entry) else 0.0,
    ),
    _of_tenant("launches_total", "Kernels and graphs launched.", _figure("launches")),
    _of_tenant("contexts", "CUDA contexts that live."),
    _of_tenant(
        "usage_told",
        "0 where its page says nothing, or what cannot be: what it uses is then left out.",
        lambda entry: float(entry["usage"] == views.READ),
    ),
)

WAITED = _of_tenant_and(
    "gpu_waited_seconds_total", "Time that it waited for the GPU, by reason.", "reason"
)
INFO = _of_tenant_and("info", "1; the image of the container, if its engine names one.", "image")
ISOLATION = _of_tenant_and(
    "isolation",
    "1; what holds its share, and the GPU of an instance that was created for it.",
    "isolation",
    "instance_of",
)

_DAY_SECONDS = 24 * 3600.0
# Of the workloads that run; nothing where nothing is recommended.
RECOMMENDED = (
    _recommended("memory_bytes", "Memory that the workload needs of each GPU.", "memory_bytes"),
    _recommended(
        "compute_ratio", "Part of each GPU's time that the workload needs.", "core_percent", 0.01
    ),
    _recommended(
        "seen_seconds", "Time of the days in which the workload was seen.", "days", _DAY_SECONDS
    ),
)
# The reason, and the key of its figure.
WAIT_REASONS = (
    (turn_figures.TURN, "waited_for_turn_seconds"),
    (turn_figures.SHARE, "waited_for_share_seconds"),
)

UTILIZATION = _gpumanagers(
    "gpu_utilization", "Percent of the GPU's time in use.", "gpu", _figure("core_used_percent")
)
MEMORY = _gpumanagers(
    "gpu_memory_total", "Memory in use, MiB.", "gpu_memory", _figure("memory_used_bytes", 1 / _MIB)
)
REQUESTED_UTILIZATION = _gpumanagers(
    "request_gpu_utilization", "GPUs asked for: 0.3.", "req_of_gpu", _figure("core_percent", 0.01)
)
REQUESTED_MEMORY = _gpumanagers(
    "request_gpu_memory",
    "Memory asked for, MiB.",
    "req_of_gpu_memory",
    _figure("memory_bytes", 1 / _MIB),
)
GPUMANAGER_METRICS = (UTILIZATION, MEMORY, REQUESTED_UTILIZATION, REQUESTED_MEMORY)

METRICS = (
    *NODE_METRICS,
    *GPU_METRICS,
    *TENANT_METRICS,
    WAITED,
    INFO,
    ISOLATION,
    *RECOMMENDED,
    *GPUMANAGER_METRICS,
)
