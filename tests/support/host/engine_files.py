"""Write engines' configuration files below a root folder and run `vcuda doctor` on them."""

from __future__ import annotations

from support.files import write
from vcuda_hook.doctor import engines as doctor_engines
from vcuda_hook.doctor.finding import OK, Finding
from vcuda_hook.engines import engine_settings

ALL_OK = {
    "nvidia-default": Finding(
        "nvidia-default", OK, "no engine has NVIDIA's runtime as its default"
    ),
    "dropped-annotations": Finding(
        "dropped-annotations", OK, "no handler of vcuda's drops a request"
    ),
    "pod-annotations": Finding(
        "pod-annotations", OK, "no pod's author can ask past the device plugin"
    ),
    "hook-and-systemd": Finding(
        "hook-and-systemd", OK, "no hook's device rules that systemd replaces"
    ),
    "containerd-cdi": Finding("containerd-cdi", OK, "containerd drops no claim's GPU"),
}


def found_below(root: str, files: dict[str, str], by_dra: bool = False) -> list[Finding]:
    """Write these files below `root`; return the doctor's findings."""
    for path, text in files.items():
        write(root + path, text)
    engines, hooks = engine_settings.read(root), engine_settings.nvidia_hooks(root)
    rules = doctor_engines.systemd_rules_devices(root)
    return doctor_engines.judge(engines, hooks, rules, by_dra)


def known(*engines: str) -> list[Finding]:
    """The findings for these engines when nothing is wrong."""
    names = ", ".join(engines) or "no engine is here"
    return [
        Finding("engine-settings", OK, names),
        Finding("engine-runtimes", OK, names),
        *ALL_OK.values(),
    ]


def containerd(wrapper: str, annotations: str, version: int = 2, default: str = "runc") -> str:
    plugin = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    table = f'plugins."{plugin}".containerd'
    return f"""
version = {version}

[{table}]
  default_runtime_name = "{default}"
  [{table}.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    pod_annotations = ["*/*"]  # runc's own business
  [{table}.runtimes.vcuda]
    runtime_type = "io.containerd.runc.v2"
    {annotations}
    [{table}.runtimes.vcuda.options]
      BinaryName = "{wrapper}"
"""


OURS = 'container_annotations = ["vcuda.io/*", "tencent.com/*"]'
