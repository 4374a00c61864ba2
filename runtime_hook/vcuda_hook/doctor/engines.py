"""Check the engines' configuration: is vcuda's runtime there, and do requests reach it?"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence

from vcuda_oci.model import names
from vcuda_oci.system.settings_file import Config

from ..engines import containerd_files, engine_settings
from ..engines.engine_settings import CONTAINERD, CRIO, DOCKER, PODMAN, Engine, Handler
from .finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding

SETTINGS, RUNTIMES, NVIDIA = "engine-settings", "engine-runtimes", "nvidia-default"
DROPPED, OPEN = "dropped-annotations", "pod-annotations"
HOOK_RULES, CDI = "hook-and-systemd", "containerd-cdi"
CHECKS = (SETTINGS, RUNTIMES, NVIDIA, DROPPED, OPEN, HOOK_RULES, CDI)
_REQUESTS = (names.ANNOTATION_CORE_UNITS, names.ANNOTATION_MEMORY_UNITS)
_NVIDIA = "nvidia-container-runtime"  # variants have suffixes: .cdi, .legacy, .experimental
_RESTART = {
    DOCKER: "restart docker",
    CONTAINERD: "restart containerd",
    CRIO: "restart crio",
    PODMAN: "",  # reads its files at each start
}


def examine(settings: Config) -> list[Finding]:
    hooks = engine_settings.nvidia_hooks()
    return judge(engine_settings.read(), hooks, systemd_rules_devices(), settings.by_dra)


def systemd_rules_devices(root: str = "") -> bool:
    """Whether systemd runs on cgroup v2: each daemon-reload then writes the device rules again."""
    v2 = f"{root}/sys/fs/cgroup/cgroup.controllers"
    return os.path.isdir(f"{root}/run/systemd/system") and os.path.exists(v2)


def judge(
    engines: Sequence[Engine],
    nvidia_hooks: Sequence[str],
    is_systemd_v2: bool = False,
    by_dra: bool = False,
) -> list[Finding]:
    """by_dra: this node offers its GPUs by DRA."""
    return [
        *readable(engines),
        *runtimes(engines),
        *nvidia_default(engines, nvidia_hooks),
        *dropped_annotations(engines),
        *pod_annotations(engines),
        *hook_rules(engines, is_systemd_v2),
        *containerd_cdi(engines if by_dra else []),
    ]


def readable(engines: Sequence[Engine]) -> list[Finding]:
    broken = []
    for engine in engines:
        for path, error in engine.broken:
            what = f"cannot be read: {error}"
            if isinstance(error, PermissionError):
                broken.append(Finding(SETTINGS, UNKNOWN, what, path, "run it as root"))
            else:
                broken.append(Finding(SETTINGS, ERROR, what, path, "correct it, or remove it"))
    there = ", ".join(engine.name for engine in engines) or "no engine is here"
    return broken or [Finding(SETTINGS, OK, there)]


def runtimes(engines: Sequence[Engine]) -> list[Finding]:
    """Each engine needs a handler with an existing wrapper, or the hook; in containerd one with the
    cgroup driver of runc's.
    """
    found = []
    for engine in engines:
        ours, runc = _ours(engine), engine.handlers.get("runc")
        for handler in ours:
            if not os.access(handler.path, os.X_OK) or os.path.isdir(handler.path):
                what = f"{engine.name}'s runtime '{handler.name}' is {handler.path}, no program"
                hint = "write the wrapper's path: " + _then(engine)
                found.append(Finding(RUNTIMES, ERROR, what, handler.file, hint))
            if runc and runc.systemd_cgroup and not handler.systemd_cgroup:
                what = (
                    f"{engine.name}'s runtime '{handler.name}' has no SystemdCgroup = true, and "
                    "'runc' has: its containers run outside their pods' cgroups, without the pods' "
                    "limits"
                )
                hint = f"run 'vcuda configure {engine.name}', then {_RESTART[engine.name]}"
                found.append(Finding(RUNTIMES, ERROR, what, handler.file, hint))
        if not ours and not engine.hooks and not engine.broken:
            what = f"{engine.name} does not know vcuda's runtime"
            hint = f"run 'vcuda configure {engine.name}' to share GPUs there"
            found.append(Finding(RUNTIMES, INFO, what, hint=hint))
    knowing = ", ".join(engine.name for engine in engines) or "no engine is here"
    return found or [Finding(RUNTIMES, OK, knowing)]


def nvidia_default(engines: Sequence[Engine], hooks: Sequence[str]) -> list[Finding]:
    what = "NVIDIA's hook gives whole GPUs, past every share, to each image that names some"
    found = [Finding(NVIDIA, WARNING, what, path, "remove the file") for path in hooks]
    for engine in engines:
        handler = engine.handlers.get(engine.default)
        path = os.path.basename(handler.path) if handler else ""
        if path.startswith(_NVIDIA) or (not handler and engine.default == "nvidia"):
            what = (
                f"NVIDIA's runtime is {engine.name}'s default: a container that names no runtime "
                "gets whole GPUs, past every share"
            )
            hint = f"make runc the default: {_then(engine)}"
            found.append(Finding(NVIDIA, WARNING, what, engine.default_file, hint))
    return found or [Finding(NVIDIA, OK, "no engine has NVIDIA's runtime as its default")]


def dropped_annotations(engines: Sequence[Engine]) -> list[Finding]:
    """Find handlers of containerd that drop vcuda's annotations: it passes only listed ones."""
    found = []
    for engine, handler in _containerd_handlers(engines):
        dropped = [key for key in _REQUESTS if not _lists(handler.container_annotations, key)]
        if dropped:
            what = f"containerd drops {' and '.join(dropped)} before '{handler.name}' sees it"
            wanted = f'container_annotations = ["{names.ANNOTATION_PREFIX}*"]'
            hint = f"set {wanted}: {_then(engine)}"
            found.append(Finding(DROPPED, ERROR, what, handler.file, hint))
    return found or [Finding(DROPPED, OK, "no handler of vcuda's drops a request")]


def pod_annotations(engines: Sequence[Engine]) -> list[Finding]:
    """Find engines that pass pods' annotations: they could request past the device plugin."""
    keys = [*_REQUESTS, *(names.ANNOTATION_PREFIX + key for key in names.REQUEST_KEYS)]
    found = []
    for engine, handler in _containerd_handlers(engines):
        patterns = [
            pattern
            for pattern in handler.pod_annotations
            if any(_lists([pattern], key) for key in keys)
        ]
        if patterns:
            what = (
                f"'{handler.name}' lets a pod's author ask past the device plugin, by "
                f"pod_annotations {', '.join(patterns)}"
            )
            hint = f"take it out of pod_annotations: {_then(engine)}"
            found.append(Finding(OPEN, WARNING, what, handler.file, hint))
    return found or [Finding(OPEN, OK, "no pod's author can ask past the device plugin")]


def hook_rules(engines: Sequence[Engine], is_systemd_v2: bool) -> list[Finding]:
    """Report that systemd replaces the device rules that the hook has set."""
    hooked = [engine for engine in engines if engine.hooks] if is_systemd_v2 else []
    found = []
    for engine in hooked:
        what = (
            f"'systemctl daemon-reload' takes the GPU from containers that {engine.name}'s hook "
            "serves, unless it makes cgroups without systemd"
        )
        hint = (
            f"run 'vcuda configure {engine.name} --hooks --undo' and "
            f"'vcuda configure {engine.name}'"
        )
        found.append(Finding(HOOK_RULES, WARNING, what, engine.hooks[0], hint))
    return found or [Finding(HOOK_RULES, OK, "no hook's device rules that systemd replaces")]


def containerd_cdi(engines: Sequence[Engine]) -> list[Finding]:
    """Find a containerd that ignores the CDI devices of claims, without an error."""
    found = []
    # With CRI-O beside it, the kubelet may use either.
    severity = WARNING if any(engine.name == CRIO for engine in engines) else ERROR
    for engine in engines:
        if engine.name != CONTAINERD or engine.broken:  # readable() reports the latter
            continue
        path = engine.files[0] if engine.files else containerd_files.FILE
        now = containerd_files.dumped(path) if engine.files else containerd_files.defaults()
        without = "pods with claims start without their GPUs"
        if now is None:
            what = f"not known whether it sets enable_cdi, without which {without}"
            hint = f"run 'containerd --config {path} config dump' to see why"
            found.append(Finding(CDI, UNKNOWN, what, path, hint))
        elif now.cri_is_disabled:
            continue  # another engine runs the pods
        elif "enable_cdi" not in now.cri:
            what = f"containerd is older than 1.7: {without}"
            hint = "install containerd 1.7 or later, or offer GPUs by the device plugin"
            found.append(Finding(CDI, severity, what, hint=hint))
        elif not now.cri["enable_cdi"]:
            path = engine.cri_file or path  # its value overrides those of other files
            plugin = containerd_files.plugin_of(containerd_files.read(path))
            hint = f'set enable_cdi = true in [plugins."{plugin}"]: {_then(engine)}'
            what = f"containerd's enable_cdi is false: {without}"
            found.append(Finding(CDI, severity, what, path, hint))
    return found or [Finding(CDI, OK, "containerd drops no claim's GPU")]


def _ours(engine: Engine) -> list[Handler]:
    return [
        handler
        for handler in engine.handlers.values()
        if os.path.basename(handler.path) == names.PROGRAM
    ]


def _containerd_handlers(engines: Sequence[Engine]) -> list[tuple[Engine, Handler]]:
    return [
        (engine, handler)
        for engine in engines
        if engine.name == CONTAINERD
        for handler in _ours(engine)
    ]


def _lists(patterns: Sequence[str], key: str) -> bool:
    """Whether a pattern matches. Source: Go's path.Match, which containerd uses: `*` matches no
    slash.
    """
    parts = key.split("/")
    return any(
        len(pattern.split("/")) == len(parts)
        and all(map(fnmatch.fnmatchcase, parts, pattern.split("/")))
        for pattern in patterns
    )


def _then(engine: Engine) -> str:
    restart = _RESTART[engine.name]
    return f"edit the file, then {restart}" if restart else "edit the file"
