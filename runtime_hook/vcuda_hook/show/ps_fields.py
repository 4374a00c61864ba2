"""The fields of `vcuda ps`: columns, templates as Docker's users write them, filters, orders: pure.

An entry is one of views.tenant_entries with "status".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.model.errors import VcudaError

from ..live import fence_figures, views
from ..text import table

Entry = Mapping[str, Any]


class Field(NamedTuple):
    """name: in a template. heading: of its column. text: of one entry."""

    name: str
    heading: str
    text: Callable[[Entry], str]


def _pod(key: str) -> Callable[[Entry], str]:
    return lambda entry: str((entry["pod"] or {}).get(key, ""))


def _memory(entry: Entry) -> str:
    """Used and limit; for a suspended container "host 3 GiB / 4 GiB": what it holds there."""
    used = table.size(entry["memory_used_bytes"])
    if views.is_off(entry):
        used = f"host {table.size(entry['suspension']['bytes'])}"
    managed = " managed" if entry["memory_managed"] else ""
    return f"{used} / {table.size(entry['memory_bytes'])}{managed}"


def _state(entry: Entry) -> str:
    """Such as "running", or "suspended 5m"."""
    held = entry["suspension"]
    is_shown = held and held["step"] == entry["status"]
    return f"{entry['status']} {views.suspended_for(entry)}" if is_shown else entry["status"]


def _contexts(entry: Entry) -> str:
    count, charged = entry["contexts"], entry["context_bytes"]
    if count is None:
        return "-"
    return f"{count}, {table.size(charged)}" if charged else str(count)


def _when(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["created"]))


_GPU = Field("GPU", "GPU", lambda entry: entry["gpu_name"] or "?")
_GPU_WIDE = Field("GPUs", "GPU", lambda e: f"{e['gpu_name'] or '?'} {table.short(e['gpu_uuid'])}")
_NAME = Field("Name", "CONTAINER", lambda entry: entry["name"])
_CORE = Field("Core", "CORE", lambda entry: f"{entry['core_percent']} %")
_USED = Field("Used", "USED", lambda entry: table.percent(entry["core_used_percent"]))
_WAITS = Field("Waits", "WAITS", lambda entry: table.percent(entry["waited_percent"]))
_MEMORY = Field("Memory", "MEMORY", _memory)
_CONTEXTS = Field("Contexts", "CONTEXTS", _contexts)
_POLICY = Field("Policy", "POLICY", lambda entry: entry["policy"])
_TERMS = Field("Terms", "POLICY", views.policy)
_ISOLATION = Field("Isolation", "ISOLATION", fence_figures.word)
_STATE = Field("State", "STATE", lambda entry: entry["status"])
_STATE_SINCE = _STATE._replace(text=_state)
_AGE = Field("Age", "AGE", lambda entry: table.age(time.time() - entry["created"]))
_IMAGE = Field("Image", "IMAGE", lambda entry: entry["image"] or "-")

COLUMNS = (_NAME, _GPU, _CORE, _USED, _MEMORY, _POLICY, _STATE_SINCE, _AGE)
# What a narrow terminal does not get, in this order.
LEAST_NEEDED = (_POLICY, _AGE, _GPU)
WIDE = (
    _NAME, _GPU_WIDE, _CORE, _USED, _WAITS, _MEMORY, _CONTEXTS, _TERMS, _ISOLATION,
    _STATE_SINCE, _AGE, _IMAGE,
)  # fmt: skip
FIELDS = (
    Field("ID", "ID", lambda entry: entry["id"]),
    Field("ContainerID", "CONTAINER ID", lambda entry: views.short_id(entry["container_id"])),
    _NAME,
    Field("Names", "NAMES", _NAME.text),  # Docker's word
    _IMAGE,
    Field("Namespace", "NAMESPACE", _pod("namespace")),
    Field("Pod", "POD", _pod("name")),
    Field("Container", "CONTAINER", _pod("container")),
    _GPU,
    Field("UUID", "UUID", lambda entry: entry["gpu_uuid"]),
    _CORE,
    _USED,
    _WAITS,
    _MEMORY,
    Field("MemoryUsed", "MEMORY USED", lambda entry: table.size(entry["memory_used_bytes"])),
    Field("MemoryLimit", "MEMORY LIMIT", lambda entry: table.size(entry["memory_bytes"])),
    _CONTEXTS,
    _TERMS._replace(name="Policy"),
    _ISOLATION,
    _STATE,
    Field("Status", "STATUS", _STATE.text),  # Docker's word
    Field("Suspended", "SUSPENDED", views.suspended),
    _AGE,
    Field("CreatedAt", "CREATED AT", _when),
)
_BY_NAME = {field.name: field for field in FIELDS}
_ACTION = re.compile(r"\{\{(.*?)\}\}")
_FIELD = re.compile(r"(json\s+)?\.(\w*)")
_ESCAPES = (("\\t", "\t"), ("\\n", "\n"))
_TABLE = re.compile(r"table(?:\s+|$)")


class Template:
    """A template such as "{{.Name}}: {{.Used}}", with "table " in front aligned and with headings,
    or "json".

    Raises VcudaError: not a template, or an unknown field.
    """

    def __init__(self, text: str) -> None:
        for escape, character in _ESCAPES:
            text = text.replace(escape, character)
        is_table = _TABLE.match(text)
        self.is_table = is_table is not None
        text = text[is_table.end() :] if is_table else text
        if text == "json":
            text = "{{json .}}"
        texts, actions = _ACTION.split(text)[::2], _ACTION.findall(text)
        self._parts = [*zip(texts, map(_action, actions)), (texts[-1], None)]
        if not actions or any("{{" in literal or "}}" in literal for literal in texts):
            raise _error("not a template", text)

    def heading(self) -> str:
        return self._filled(lambda field: field.heading if field else "JSON")

    def line(self, entry: Entry) -> str:
        """The entry's line; no text of an entry begins another line or column."""
        return self._filled(lambda field: field.text(entry) if field else json.dumps(entry))

    def _filled(self, text: Callable[[Field | None], str]) -> str:
        line = ""
        for literal, action in self._parts:
            line += literal
            if action is not None:
                field, quoted = action
                filled = table.printable(text(field))
                line += json.dumps(filled) if quoted else filled
        return line


def _action(action: str) -> tuple[Field | None, bool]:
    """(the field, whether it is quoted as JSON); None: the whole entry."""
    match = _FIELD.fullmatch(action.strip())
    if match and match[1] and not match[2]:
        return None, False
    if not match or match[2] not in _BY_NAME:
        raise _error(f"no such field '{{{{{action}}}}}'", "--format")
    return _BY_NAME[match[2]], bool(match[1])


def _error(what: str, where: str) -> VcudaError:
    names = " ".join("." + field.name for field in FIELDS)
    return VcudaError(what, where, f"write {{{{.Name}}}}, {{{{json .}}}} or json; fields: {names}")


# By the names of choices.PS_FILTERS. As with Docker, a name is found by a part of it.
FILTERS: dict[str, Callable[[Entry, str], bool]] = {
    "id": lambda e, value: any(e[key].startswith(value) for key in ("id", "container_id")),
    "name": lambda entry, value: value in entry["name"],
    "image": lambda entry, value: value in (entry["image"] or ""),
    "namespace": lambda entry, value: _pod("namespace")(entry) == value,
    "pod": lambda entry, value: _pod("name")(entry) == value,
    "gpu": lambda entry, value: value == entry["gpu_name"] or entry["gpu_uuid"].startswith(value),
    "policy": lambda entry, value: value == entry["policy"],
    "status": lambda entry, value: value == entry["status"],
}


def selected(entries: Sequence[Entry], filters: Sequence[str]) -> list[Entry]:
    """The entries that have one of the values of each key. filters: "key=value".

    Raises VcudaError: an unknown key, or no value.
    """
    wanted: dict[str, list[str]] = {}
    for text in filters:
        key, _, value = text.partition("=")
        if key not in FILTERS or not value:
            hint = f"write KEY=VALUE; keys: {', '.join(FILTERS)}"
            raise VcudaError(f"no such filter '{text}'", "--filter", hint)
        wanted.setdefault(key, []).append(value)
    return [
        entry
        for entry in entries
        if all(any(FILTERS[key](entry, each) for each in values) for key, values in wanted.items())
    ]


# The largest or newest first; the others in the order of their text, an unknown GPU last.
_FIGURES = {
    "core": "core_percent",
    "used": "core_used_percent",
    "memory": "memory_used_bytes",
    "waits": "waited_percent",
    "created": "created",
}
_TEXTS: dict[str, Callable[[Entry], Any]] = {
    "name": lambda entry: entry["name"],
    "gpu": lambda entry: (entry["gpu_index"] is None, entry["gpu_index"], entry["gpu_name"]),
    "state": lambda entry: entry["status"],
}


def ordered(entries: Sequence[Entry], order: str) -> list[Entry]:
    """order: one of choices.PS_ORDERS; "": as they are."""
    if order in _FIGURES:
        return sorted(entries, key=lambda entry: entry[_FIGURES[order]] or 0, reverse=True)
    return sorted(entries, key=_TEXTS[order]) if order else list(entries)
