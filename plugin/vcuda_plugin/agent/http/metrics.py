"""The node's Prometheus metrics: name, kind, help and labels of each.

A test compares them with docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vcuda_hook.live import turn_figures, views
from vcuda_oci.model.suspension import SUSPENDED, WAITING
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


def _of_node(name: str, kind: str, help: str, *labels: str) -> Metric:
    """A metric of the node; its entry is {"": value}."""
    return Metric(f"vcuda_{name}", kind, help, labels, _figure(""))


def _of_gpu(name: str, help: str, value: _Value, kind: str = GAUGE) -> Metric:
    return Metric(f"vcuda_gpu_{name}", kind, help, GPU_LABELS, value)


def _of_tenant(name: str, kind: str, help: str, value: _Value) -> Metric:
    return Metric(f"vcuda_container_{name}", kind, help, TENANT_LABELS, value)


def _is_off(entry: Mapping[str, Any]) -> bool:
    held = entry["suspension"]
    return bool(held) and held["step"] in (SUSPENDED, WAITING)


def _gpumanagers(name: str, help: str, label: str, value: _Value) -> Metric:
    return Metric(f"container_{name}", GAUGE, help, (*OWNER_LABELS, label), value)


BUILD = _of_node("build_info", GAUGE, "1; the version that runs.", "version")
BROKEN = _of_node("broken_records", GAUGE, "Records that are not whole: what they hold is unknown.")
EVENTS = _of_node("events_total", COUNTER, "What happened to allocations, by kind.", "kind")
REFUSALS = _of_node("refusals_total", COUNTER, "Containers refused, by reason.", "reason")
BYPASSES = _of_node("bypass_found_total", COUNTER, "Times a container was seen round the shim.")
START = _of_node("start_seconds", HISTOGRAM, "Time that giving a container its share took.")
NODE_METRICS = (BUILD, BROKEN, EVENTS, REFUSALS, BYPASSES, START)


def _sensor(key: str) -> _Value:
    def value(entry: Mapping[str, Any]) -> float | None:
        figure: float | None = entry["sensors"][key]
        return figure

    return value


def _of_mps(key: str) -> _Value:
    """Of GPUs with containers under MPS."""

    def value(entry: Mapping[str, Any]) -> float | None:
        figure = entry["mps"] and entry["mps"][key]
        return None if figure is None else float(figure)

    return value


def _is_healthy(gpu: Mapping[str, Any]) -> float:
    return float(views.condition(gpu) in ("", DRAINED))


GPU_METRICS = (
    _of_gpu("healthy", "0 while it is unhealthy.", _is_healthy),
    _of_gpu(
        "drained",
        "1 while it is drained: it gets no new containers.",
        lambda gpu: float(views.is_drained(gpu)),
    ),
    _of_gpu("memory_bytes", "Memory that it has.", _figure("memory_bytes")),
    _of_gpu(
        "memory_promised_bytes", "Its tenants' limits, summed.", _figure("promised_memory_bytes")
    ),
    _of_gpu(
        "compute_reserved_ratio",
        "Part of its time that is reserved for tenants.",
        lambda gpu: (100 - gpu["free_core_percent"]) / 100,
    ),
    _of_gpu("tenants", "Containers and named slices that hold a share of it.", _figure("tenants")),
    _of_gpu(
        "lost_seconds_total",
        "Time in turns of its containers in which it was idle.",
        _figure("lost_seconds"),
        COUNTER,
    ),
    _of_gpu(
        "instances",
        "GPU instances on it that were created for one container each.",
        _figure("instances"),
    ),
    _of_gpu(
        "instances_left_over",
        "Those of them that no share names any more, and that are not destroyed yet.",
        _figure("instances_left_over"),
    ),
    _of_gpu(
        "mps_serves",
        "1 while the MPS daemon and server of its containers run, else 0.",
        _of_mps("serves"),
    ),
    _of_gpu(
        "mps_fault",
        "1 after a fault that ended the work of all MPS clients, until they have ended.",
        _of_mps("fault"),
    ),
    _of_gpu("mps_clients", "Processes that are clients of MPS.", _of_mps("clients")),
    _of_gpu("temperature_celsius", "Temperature of the chip.", _sensor("temperature_celsius")),
    _of_gpu("power_watts", "Power that it draws.", _sensor("power_watts")),
    _of_gpu("power_limit_watts", "Power that it may draw.", _sensor("power_limit_watts")),
    _of_gpu("sm_clock_hertz", "Clock of its multiprocessors.", _sensor("sm_clock_hertz")),
    _of_gpu("memory_clock_hertz", "Clock of its memory.", _sensor("memory_clock_hertz")),
    _of_gpu(
        "pcie_sent_bytes_per_second",
        "What it sends by PCIe, over 20 ms.",
        _sensor("pcie_sent_bytes_per_second"),
    ),
    _of_gpu(
        "pcie_received_bytes_per_second",
        "What it receives by PCIe, over 20 ms.",
        _sensor("pcie_received_bytes_per_second"),
    ),
    _of_gpu(
        "nvlink_sent_bytes_total",
        "What it has sent by all its NVLinks.",
        _sensor("nvlink_sent_bytes"),
        COUNTER,
    ),
    _of_gpu(
        "nvlink_received_bytes_total",
        "What it has received by all its NVLinks.",
        _sensor("nvlink_received_bytes"),
        COUNTER,
    ),
)

TENANT_METRICS = (
    _of_tenant("memory_limit_bytes", GAUGE, "Memory that it may hold.", _figure("memory_bytes")),
    _of_tenant(
        "memory_used_bytes",
        GAUGE,
        "Memory that it holds, with what its contexts are charged.",
        _figure("memory_used_bytes"),
    ),
    _of_tenant(
        "driver_memory_limit_bytes",
        GAUGE,
        "The driver's own limit of its cgroup, where the driver has one.",
        _figure("driver_limit_bytes"),
    ),
    _of_tenant(
        "driver_memory_used_bytes",
        GAUGE,
        "What the driver counts against that limit, contexts and code too.",
        _figure("driver_used_bytes"),
    ),
    _of_tenant(
        "memory_refusals_total", COUNTER, "Allocations refused at its limit.", _figure("refusals")
    ),
    _of_tenant(
        "memory_full_gpu_total",
        COUNTER,
        "Times that the GPU had no memory left within its share, so that others were asked.",
        _figure("full_gpu"),
    ),
    _of_tenant(
        "compute_reserved_ratio",
        GAUGE,
        "Part of the GPU's time that is reserved for it.",
        _figure("core_percent", 0.01),
    ),
    _of_tenant(
        "compute_ceiling_ratio",
        GAUGE,
        "Part of the GPU's time that it gets at most.",
        _figure("core_ceiling_percent", 0.01),
    ),
    _of_tenant(
        "compute_ratio",
        GAUGE,
        "Part of the GPU's time that it used since the look before.",
        _figure("core_used_percent", 0.01),
    ),
    _of_tenant("compute_seconds_total", COUNTER, "GPU time that it used.", _figure("busy_seconds")),
    _of_tenant(
        "throttled_seconds_total",
        COUNTER,
        "Time that its launches waited for their share.",
        _figure("waited_seconds"),
    ),
    _of_tenant(
        "gpu_held_seconds_total",
        COUNTER,
        "Time in which it had its turn and no other container could use the GPU.",
        _figure("held_seconds"),
    ),
    _of_tenant(
        "gpu_lost_seconds_total",
        COUNTER,
        "Part of the time that it held in which the GPU was idle.",
        _figure("lost_seconds"),
    ),
    _of_tenant(
        "overrun_seconds",
        GAUGE,
        "The most GPU time that it took at once beyond its share, before it had to wait.",
        _figure("overrun_seconds"),
    ),
    _of_tenant(
        "suspended",
        GAUGE,
        "1 while it is off the GPU, which others may use, else 0.",
        lambda entry: float(_is_off(entry)),
    ),
    _of_tenant(
        "suspended_bytes",
        GAUGE,
        "Memory that it holds in the host's memory, also by checkpoints of its own user.",
        lambda entry: float(
            entry["suspension"]["bytes"] if _is_off(entry) else entry["memory_off_bytes"] or 0
        ),
    ),
    _of_tenant(
        "suspended_since_seconds",
        GAUGE,
        "When it was suspended, in seconds since 1970; 0 while it is not.",
        lambda entry: float(entry["suspension"]["since"]) if _is_off(entry) else 0.0,
    ),
    _of_tenant("launches_total", COUNTER, "Kernels and graphs launched.", _figure("launches")),
    _of_tenant("contexts", GAUGE, "CUDA contexts that live.", _figure("contexts")),
    _of_tenant(
        "usage_told",
        GAUGE,
        "0 where its page says nothing, or what cannot be: what it uses is then left out.",
        lambda entry: float(entry["usage"] == views.READ),
    ),
)

WAITED = Metric(
    "vcuda_container_gpu_waited_seconds_total",
    COUNTER,
    "Time that it waited for the GPU, by reason.",
    (*TENANT_LABELS, "reason"),
    _figure(""),
)
INFO = Metric(
    "vcuda_container_info",
    GAUGE,
    "1; the image of the container, if its engine names one.",
    (*TENANT_LABELS, "image"),
    _figure(""),
)


_DAY_SECONDS = 24 * 3600.0


def _recommended(name: str, help: str, key: str, part: float = 1) -> Metric:
    return Metric(f"vcuda_recommended_{name}", GAUGE, help, WORKLOAD_LABELS, _figure(key, part))


# Of the workloads that run; nothing where nothing is recommended.
RECOMMENDED = (
    _recommended("memory_bytes", "Memory that the workload needs of each GPU.", "memory_bytes"),
    _recommended(
        "compute_ratio",
        "Part of each GPU's time that the workload needs.",
        "core_percent",
        0.01,
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
ISOLATION = Metric(
    "vcuda_container_isolation",
    GAUGE,
    "1; what holds its share, and the GPU of an instance that was created for it.",
    (*TENANT_LABELS, "isolation", "instance_of"),
    _figure(""),
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
