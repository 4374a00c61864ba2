"""The kind of a CDI spec: the VENDOR/CLASS before the `=` of its devices' names.

A spec has one kind. One of the kind nvidia.com/gpu makes Docker's `--gpus` give vcuda's devices.
Source: CDI SPEC.md, "kind"; the CDI library's cache, which drops a device that two specs of one
folder define.
"""

from __future__ import annotations

import glob
import json
import os
import re

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

_FORM = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
# In a spec of JSON or YAML.
_IN_SPEC = re.compile(r"^[\s{]*[\"']?kind[\"']?\s*:\s*[\"']?([\w./-]+)", re.MULTILINE)
_FOLDER = os.path.dirname(names.CDI_SPEC)


def is_kind(text: str) -> bool:
    return bool(_FORM.fullmatch(text))


def output_of(kind: str | None) -> str:
    """The default file of a spec of this kind."""
    if kind in (None, names.CDI_KIND):
        return names.CDI_SPEC
    return f"{_FOLDER}/vcuda-{str(kind).replace('/', '-')}.json"


def written() -> list[str]:
    """vcuda's specs in the folder that engines read."""
    return sorted({names.CDI_SPEC, *glob.glob(f"{_FOLDER}/vcuda-*.json")})


def of_file(path: str) -> str:
    """The kind of the spec in this file; vcuda's default kind if there is no such file."""
    try:
        kind = json.loads(files.read(path, follow=True))["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return names.CDI_KIND
    return kind if isinstance(kind, str) and _FORM.fullmatch(kind) else names.CDI_KIND


def refuse_conflict(kind: str, path: str) -> None:
    """Raises VcudaError: another spec beside `path` defines devices of this kind."""
    folder, own = os.path.dirname(os.path.abspath(path)), os.path.realpath(path)
    for other in sorted(glob.glob(f"{folder}/*")):
        if other.endswith((".json", ".yaml", ".yml")) and os.path.realpath(other) != own:
            try:
                found = _IN_SPEC.search(files.read(other, follow=True).decode())
            except (OSError, ValueError):
                continue
            if found and found[1] == kind:
                what = f"is of the kind {kind} too, and engines drop devices that two specs define"
                raise VcudaError(what, other, "remove it, or write another --kind")
