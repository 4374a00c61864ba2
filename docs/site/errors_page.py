"""Every error line with its mend, from the code: docs/errors.md on standard output.

`make pages` calls it.
"""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Callable, Iterator

import error_lines
import error_lines_c
import error_lines_sh
from error_line import REPOSITORY, UNKNOWN, Line, Unreadable

HEAD = f"""\
# Error lines

Made of the code by `make pages`; do not edit. Each is one line, `program: where: what; mend`.
`<name>` is the name, path or figure at hand, `{UNKNOWN}` any text. A container that is refused
leaves nothing behind: no share, no file. An error that has no such line is a mistake of vcuda's,
and keeps its traceback. An option that is not there, or lacks its value, is told by
`program: error: …`, below how the program is called.

A start's line is what the engine shows, and stands in `vcuda events`; behind the mend it has
`(allocation ID)`, for [`vcuda events ID`](cli.md#events-name). `vcuda doctor` finds much of what is
below before a container does.
"""

OCI, HOOK, PLUGIN = "oci/vcuda_oci/", "runtime_hook/vcuda_hook/", "plugin/vcuda_plugin/"
TENDER = PLUGIN + "extender/"

# By program, and there by situation: the files whose lines are said in it.
SITUATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "A container's start": {
        "The settings are read. Every program does so first.": (
            OCI + "config.py",
            OCI + "trusted_file.py",
        ),
        "The front door looks for the runtime below it, and for Python.": (
            "oci/launcher/launcher.c",
            "oci/launcher/release.h",
            OCI + "runtime.py",
        ),
        "The bundle that the engine made is read and rewritten.": (
            OCI + "bundle.py",
            OCI + "edits.py",
            OCI + "procfs.py",
        ),
        "What the container asks for is read: annotations, variables, its pod.": (
            OCI + "request.py",
            OCI + "sizes.py",
            OCI + "policies.py",
            OCI + "capabilities.py",
            OCI + "requirements.py",
            OCI + "image_libraries.py",
            OCI + "guest/tree.py",
            OCI + "guest/memory.py",
            OCI + "identity.py",
        ),
        "A share is claimed. The reason says what would fit.": (
            OCI + "claim.py",
            OCI + "placement.py",
            OCI + "eligible.py",
            OCI + "parts.py",
            OCI + "decided.py",
            OCI + "handoff.py",
            OCI + "ledger.py",
            OCI + "guest/page_file.py",
        ),
        "The driver is looked for and asked.": (
            OCI + "grant.py",
            OCI + "driver_scan.py",
            OCI + "host.py",
            OCI + "nvml.py",
        ),
        "A hook gives a share to a container that is being created.": (
            OCI + "container_state.py",
            HOOK + "hooks/create.py",
            HOOK + "hooks/created_container.py",
            HOOK + "hooks/attach.py",
            HOOK + "hooks/cdi_hook.py",
            "oci/launcher/hook.c",
            "oci/launcher/procfs_hook.c",
        ),
    },
    "In a container": {
        "The shim says so, in the program that uses a GPU.": (
            "libvcuda/src/pages.c",
            "libvcuda/src/page_fault.c",
            "libvcuda/src/slot.c",
            "libvcuda/src/managed.c",
        ),
    },
    "The vcuda command": {
        "Its command line.": (
            HOOK + "cli/main.py",
            HOOK + "cli/live_options.py",
            HOOK + "cli/engine_options.py",
        ),
        "`vcuda run`": (
            *(HOOK + "run/command.py", HOOK + "run/program.py"),
            *(HOOK + "run/overlay.py", HOOK + "run/spec.py"),
        ),
        "`vcuda inspect`, `limit`, `release`, `events`, `top`, `gpus`": (
            HOOK + "live/container_names.py",
            HOOK + "cli/output.py",
            HOOK + "show/show.py",
            HOOK + "cli/limit.py",
            OCI + "resize.py",
            HOOK + "cli/release.py",
            HOOK + "show/show_events.py",
            HOOK + "show/top.py",
            HOOK + "show/context_memory.py",
        ),
        "`vcuda configure` reads and changes an engine's file.": (
            HOOK + "engines/configure.py",
            HOOK + "engines/containerd.py",
            HOOK + "engines/crio.py",
            HOOK + "engines/text_edit.py",
            HOOK + "engines/undo_record.py",
            HOOK + "engines/engine_file.py",
        ),
        "`vcuda cdi`": (
            HOOK + "cdi/command.py",
            HOOK + "cdi/spec_file.py",
            HOOK + "cdi/cdi_kind.py",
            HOOK + "live/slices.py",
        ),
        "`vcuda serve`, and the node agent's door": (OCI + "door.py",),
        "`vcuda demo`": (
            HOOK + "demo/demo.py",
            HOOK + "demo/demo_device.py",
            HOOK + "demo/demo_container.py",
        ),
    },
    "vcuda-node-agent": {
        "It starts.": (
            PLUGIN + "dependencies.py",
            PLUGIN + "agent/main.py",
            PLUGIN + "agent/process/child.py",
            PLUGIN + "agent/pods/pod_watch_child.py",
            PLUGIN + "agent/pods/kube_api.py",
            PLUGIN + "agent/http/listen_address.py",
            PLUGIN + "agent/http/http_child.py",
            PLUGIN + "agent/http/http_process.py",
            PLUGIN + "agent/http/http_server.py",
            PLUGIN + "agent/compute/grants.py",
        ),
        "It speaks with the kubelet.": (
            PLUGIN + "agent/kubelet/registration.py",
            PLUGIN + "agent/kubelet/resources.py",
            PLUGIN + "agent/kubelet/device_plugin.py",
        ),
        "It looks at the GPUs and at their processes.": (
            PLUGIN + "agent/gpus/gpu_probe.py",
            PLUGIN + "agent/bypass/process_probe.py",
            PLUGIN + "agent/gpus/inventory.py",
            PLUGIN + "agent/bypass/bypass_child.py",
            PLUGIN + "agent/ledger/sweep.py",
        ),
        "It follows its node's pods, and labels the node.": (
            PLUGIN + "agent/pods/pod_watch.py",
            PLUGIN + "agent/pods/pod_lookup.py",
            PLUGIN + "agent/pods/pod_events.py",
            PLUGIN + "agent/pods/node_metadata.py",
            PLUGIN + "agent/gpus/feature_file.py",
        ),
    },
    "vcuda-scheduler-extender": {
        "It starts.": (
            PLUGIN + "dependencies.py",
            TENDER + "http/certificates.py",
            TENDER + "main.py",
            TENDER + "follow/api.py",
            TENDER + "quota/quota_limits.py",
        ),
        "A node is not for a pod. kube-scheduler shows the line as the pod's event.": (
            PLUGIN + "kube/pod_amounts.py",
            TENDER + "model/pod_request.py",
            TENDER + "model/place.py",
            TENDER + "filter/fit.py",
            TENDER + "cluster/cluster.py",
        ),
        "It runs beside others, and follows the cluster.": (
            TENDER + "bind/leader.py",
            TENDER + "follow/follow.py",
            TENDER + "follow/quota_follow.py",
            TENDER + "http/server.py",
            TENDER + "http/connections.py",
        ),
        "`vcuda simulate`": (
            HOOK + "cli/simulate.py",
            PLUGIN + "simulate/command.py",
            PLUGIN + "simulate/nodes.py",
            PLUGIN + "simulate/trace.py",
            PLUGIN + "simulate/rows.py",
        ),
    },
    "The packages": {
        "They are installed or removed. Nothing of it fails the installation or the removal.": (
            "packaging/nfpm/installed.sh",
            "packaging/nfpm/removing.sh",
            "packaging/nfpm/softgpu-removing.sh",
            "packaging/nfpm/removed.sh",
        ),
    },
    "The software GPU": {
        "`softgpu` makes, divides and removes GPUs.": (
            "libvcuda/softgpu/create.c",
            "libvcuda/softgpu/create_state.c",
            "libvcuda/softgpu/create_topology.c",
            "libvcuda/softgpu/divide.c",
            "libvcuda/softgpu/files.c",
            "libvcuda/softgpu/option_value.c",
            "libvcuda/softgpu/order.c",
        ),
        "Programs that use a GPU, and clocks of their own.": (
            "libvcuda/softgpu/workload.c",
            "libvcuda/softgpu/workload_gpu.c",
            "libvcuda/softgpu/smi.c",
            "libvcuda/softgpu/smi_query.c",
            "libvcuda/softgpu/clock/seats.c",
        ),
    },
}
# What is said on standard error when nothing is wrong.
NO_ERRORS = {
    # How far it is.
    PLUGIN + "simulate/command.py": "<come> of … pods came, <waiting> wait",
}
# How a refusal of placement is told where it is not by a container's start.
RETRY = ("<node>", "ask for less, or free a share: the pod is tried again by itself")
TOLD_AS = {
    OCI + "decided.py": (
        "decision for pod <pod>",
        "delete the pod if it stays so, and it is scheduled anew",
    ),
    TENDER + "model/place.py": RETRY,
    TENDER + "filter/fit.py": RETRY,
    TENDER + "cluster/cluster.py": RETRY,
}


def main() -> None:
    wrong = [reason for path in _sources() for reason in _wrong(path)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print("\n".join(_page()))


def _wrong(path: str) -> Iterator[str]:
    """What this page cannot show of what the file says."""
    try:
        said = lines(path)
    except Unreadable as error:
        yield f"{error}: no line that this page can show; write it as others do"
        return
    placed = [files for group in SITUATIONS.values() for files in group.values() if path in files]
    if said and not placed:
        yield f"{path}: no situation for what it says; name it in SITUATIONS"
    for line in said:
        if line.where and not line.mend:
            yield f"{path}: {_front(line)}: no mend; say how it is mended, where it is raised"


def _page() -> Iterator[str]:
    yield HEAD
    for program, situations in SITUATIONS.items():
        yield f"## {program}\n"
        for situation, files in situations.items():
            heading, _, rest = situation.partition(". ")
            yield f"### {heading.rstrip('.')}\n"
            yield from [rest + "\n"] * bool(rest)
            yield from _table(list(dict.fromkeys(line for path in files for line in lines(path))))


@functools.cache
def lines(path: str) -> list[Line]:
    found = _reader(path)(path)
    if path in NO_ERRORS:
        found = [line for line in found if line.what != NO_ERRORS[path]]
    if path in TOLD_AS:
        where, mend = TOLD_AS[path]
        return [Line(where, line.what, mend) for line in found]
    return found


def _reader(path: str) -> Callable[[str], list[Line]]:
    if path.endswith((".c", ".h")):
        return error_lines_c.of
    return error_lines_sh.of if path.endswith(".sh") else error_lines.of


def _sources() -> list[str]:
    python = [path for root in (OCI, HOOK, PLUGIN) for path in _glob(root + "**/*.py")]
    c = [path for root in ("oci/launcher", "libvcuda") for path in _glob(root + "/**/*.[ch]")]
    programs = [path for path in _glob("packaging/vcuda*") if "." not in os.path.basename(path)]
    return sorted(python + c + programs + _glob("packaging/nfpm/*.sh"))


def _glob(pattern: str) -> list[str]:
    found = glob.glob(f"{REPOSITORY}/{pattern}", recursive=True)
    return [os.path.relpath(path, REPOSITORY) for path in found]


def _table(said: list[Line]) -> Iterator[str]:
    errors = [line for line in said if line.where or line.mend]
    if errors:
        yield "| line | mend |\n| --- | --- |"
        yield from (f"| {_code(_front(line))} | {_code(line.mend)} |" for line in errors)
        yield ""
    warnings = [line for line in said if line not in errors]
    if warnings:
        yield "Warnings, after which it goes on:\n"
        yield from (f"- {_code(line.what)}" for line in warnings)
        yield ""


def _front(line: Line) -> str:
    return f"{line.where}: {line.what}"


def _code(text: str) -> str:
    """In a table, and with whatever quotes."""
    return "`" + text.replace("|", r"\|").replace("`", "'").replace("\n", " ") + "`"


if __name__ == "__main__":
    main()
