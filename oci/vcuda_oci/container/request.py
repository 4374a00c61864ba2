"""Find a container's request and parse it."""

from __future__ import annotations

from ..model import jsontree, names, policies
from ..model.errors import VcudaError
from ..model.record import Record
from ..model.request import ALL_GPUS, Part, Request
from ..model.sizes import share_bytes
from ..system.settings_file import ENV_ALWAYS, ENV_NEVER, PLACEMENTS
from .container import Container
from .identity import claims_two_engines, image_may_annotate, is_from_crio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Prefix of the keys that carry the device plugin's amounts.
_UNITS = "request."
# The place of a request by NVIDIA's variable alone.
_NVIDIA = f"env {names.NVIDIA_VISIBLE_DEVICES}"


class RawRequest(Record):
    """A request before it is parsed.

    words: values by key. where: its place, for errors. from_env: it is in the environment, or in
    annotations that the image may have set. sources: for a request in mounts, their sources by key.
    """

    def __init__(
        self,
        words: dict[str, str],
        where: str,
        from_env: bool = False,
        sources: dict[str, str] | None = None,
    ) -> None:
        self.words, self.where, self.from_env = words, where, from_env
        self.sources = sources or {}


def find(container: Container) -> RawRequest | None:
    """Find the request: in annotations, else in a pod's mounts, else in VCUDA_*, else in
    NVIDIA_VISIBLE_DEVICES.

    Includes unknown keys, so that a misspelled key is refused later, not ignored. None: there is no
    request, whatever the settings are. Never raises.
    """
    words, annotations = {}, container.annotations
    if claims_two_engines(annotations):
        return None
    for key, value in annotations.items():
        if key.startswith(names.ANNOTATION_PREFIX) and not _is_from_pod(key, annotations):
            tail = key[len(names.ANNOTATION_PREFIX) :]
            if tail not in names.OTHER_KEYS:
                words[tail] = value
    if words:
        return RawRequest(words, "annotations", from_env=image_may_annotate(annotations))
    sources = _request_mounts(container) if container.is_pod else {}
    if sources:
        words = {key: source.rpartition("/")[2] for key, source in sources.items()}
        return RawRequest(words, "mounts", sources=sources)
    env, words = container.environment, {}
    for key, value in env.items():
        if key.startswith(names.ENV_PREFIX):
            words[key[len(names.ENV_PREFIX) :].lower().replace("_", "-")] = value
    if words:
        return RawRequest(words, "env", from_env=True)
    # "", "void" and "none" mean no GPU to NVIDIA's runtime too.
    visible = env.get(names.NVIDIA_VISIBLE_DEVICES, "")
    if visible not in ("", "void", "none"):
        return RawRequest({"gpu": visible}, _NVIDIA, from_env=True)
    return None


def counts(raw: RawRequest, env_setting: str, is_pod: bool, privileged: bool) -> bool:
    """Whether the settings allow this request. Raises VcudaError: the container must not start.

    env_setting: accept-request-from-env. A request from a pod's environment never counts, because
    the pod's author writes it.
    """
    if not raw.from_env:
        return True
    if is_pod or env_setting == ENV_NEVER:
        return False
    if env_setting == ENV_ALWAYS or not privileged:
        return True
    # Many images set NVIDIA's variable; a privileged container sees all GPUs anyway.
    if raw.where == _NVIDIA:
        return False
    _reject_unknown(raw)
    raise VcudaError(
        "a privileged container sees every GPU, a share cannot hold it",
        raw.where,
        'start it without --privileged, or set accept-request-from-env = "always"',
    )


def has_agent_sources(raw: RawRequest, state_dirs: tuple[str, ...]) -> bool:
    """Whether the mounts with the request, if any, have the sources that the agent gives them.

    state_dirs: the state folder's path as set and with links resolved, as engines resolve links.
    """
    for key, source in raw.sources.items():
        tail = f"{names.REQUESTS}/{key[len(_UNITS) :]}/{raw.words[key]}"
        if source not in [f"{place}/{tail}" for place in state_dirs]:
            return False
    return True


def parse(raw: RawRequest) -> Request:
    """Parse a request. Raises VcudaError: an unknown key or an invalid value."""
    words, where = dict(raw.words), raw.where
    units = {key: words.pop(key) for key in list(words) if key.startswith(_UNITS)}
    virtual = _tail(names.ANNOTATION_VIRTUAL_UNITS) in units
    memory: int | None = None
    _reject_unknown(raw)
    if where == _NVIDIA:
        return Request([Part(0)], _gpus(words["gpu"], where))
    if virtual or _tail(names.ANNOTATION_GPU_UNITS) in units:
        if len(units) > 1:
            raise VcudaError(
                "whole GPUs and shares of GPUs at once", where, "ask for the one or the other"
            )
        core = 100 * _whole_number(units.popitem()[1], "gpu", where)
    elif units:
        core_text = units.get(_tail(names.ANNOTATION_CORE_UNITS), "")
        core = _whole_number(core_text, "vcuda-core", where)
        blocks = units.get(_tail(names.ANNOTATION_MEMORY_UNITS))
        if blocks is not None:
            memory = _whole_number(blocks, "vcuda-memory", where) * names.MEMORY_UNIT_BYTES
    else:
        if "core" not in words:
            raise VcudaError(
                f"{', '.join(sorted(words))} without core",
                where,
                f"add how much compute: {_core_as_written(where)}",
            )
        core = _whole_number(words["core"], "core", where)
        if "memory" in words:
            memory = share_bytes(words["memory"], where)
    # Of virtual GPUs the amount is unknown here, so any core-limit is accepted for now.
    terms = policies.parse(words, 1 if virtual else core, where)
    placement = words.get("placement", "")
    if placement not in ("", *PLACEMENTS):
        hint = "use binpack, spread or topology"
        raise VcudaError(f"placement '{placement}' is not offered", where, hint)
    gpus = _gpus(words["gpu"], where) if "gpu" in words else ()
    if virtual:
        return Request((), gpus, terms, placement, counted=core // 100)
    return Request([Part(core, memory)], gpus, terms, placement)


def _is_from_pod(key: str, annotations: Mapping[str, str]) -> bool:
    """Whether CRI-O copied this annotation from the pod, where the pod's author may write anything.

    Source: CRI-O internal/factory/container, SpecAddAnnotations; read, not run.
    """
    if not is_from_crio(annotations):
        return False
    try:
        own = jsontree.loads(annotations.get(names.CRIO_ANNOTATIONS, ""))
    except ValueError:
        return True
    return not (isinstance(own, dict) and key in own)


def _request_mounts(container: Container) -> dict[str, str]:
    """The sources of the mounts from Allocate's answer, by the request's key."""
    beginning = names.GUEST_REQUESTS + "/"
    return {
        _UNITS + mount.destination[len(beginning) :]: mount.source
        for mount in container.mounts
        if mount.source and mount.destination.startswith(beginning)
    }


def _tail(annotation: str) -> str:
    return annotation[len(names.ANNOTATION_PREFIX) :]


def _reject_unknown(raw: RawRequest) -> None:
    known = (*names.REQUEST_KEYS, *map(_tail, names.ANNOTATIONS_OF_UNITS))
    for key in raw.words:
        if key not in known:
            import difflib  # late: only an error needs it

            near = difflib.get_close_matches(key, known, 1, 0.0)[0]
            raise VcudaError(
                f"unknown request key {_as_written(key, raw.where)}",
                raw.where,
                f"did you mean {_as_written(near, raw.where)}?",
            )


def _as_written(key: str, where: str) -> str:
    """The key as a user writes it there: a variable's name, an annotation's, or the key itself."""
    if where == "env":
        return names.ENV_PREFIX + key.upper().replace("-", "_")
    return names.ANNOTATION_PREFIX + key if where == "annotations" else f"'{key}'"


def _core_as_written(where: str) -> str:
    """An example of `core` as a user writes it there."""
    if where in ("env", "annotations"):
        return _as_written("core", where) + "=30"
    return "core:30" if where.startswith("--slice") else "core=30"


def _whole_number(text: str, key: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) < 1:
        raise VcudaError(
            f"{key} cannot be '{text}'",
            where,
            "write a whole number from 1: 30 is 30 % of a GPU, 100 one whole GPU"
            if key != "vcuda-memory"
            else "write a whole number of 256 MiB units from 1",
        )
    return int(text)


def _gpus(text: str, where: str) -> tuple[str, ...]:
    gpus = tuple(part.strip() for part in text.split(","))
    if not all(gpus) or len(set(gpus)) != len(gpus):
        raise VcudaError(
            f"gpu cannot be '{text}'", where, "list each GPU once, by UUID or index: 0,1"
        )
    return () if gpus == (ALL_GPUS,) and where != _NVIDIA else gpus
