"""Check CDI specifications: do the files and nodes that they name still exist?"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.model import names
from vcuda_oci.system.settings_file import Config

from .finding import OK, UNKNOWN, WARNING, Finding

STALE = "cdi"
CHECKS = (STALE,)
_NONE = "no specification for GPUs"
# Source: the CDI specification, "Directories".
FOLDERS = ("/etc/cdi", "/var/run/cdi")
_KIND = re.compile(r"\bkind\"?\s*:\s*\"?((?:vcuda\.io|nvidia\.com)/[\w.-]+)")
# A specification is JSON or YAML. In both, a path of this host follows its key on the same line.
_PATH = re.compile(r"\b(hostPath|path)\"?\s*:\s*[\"']?(/[^\"',}\n]+?)[\"']?\s*(?=[,}\n]|$)")


@dataclass
class Specification:
    """missing: the host's files and device nodes that it names and that do not exist.

    kind: "" for another vendor's. unreadable: the reason, or "".
    """

    path: str
    kind: str
    missing: Sequence[str]
    unreadable: str = ""


def examine(settings: Config) -> list[Finding]:
    return stale(read_host(FOLDERS))


def read_host(folders: Sequence[str]) -> list[Specification]:
    found = []
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        for pattern in ("json", "yaml", "yml"):
            for path in sorted(glob.glob(f"{folder}/*.{pattern}")):
                try:
                    with open(path, encoding="utf-8") as file:
                        found.append(_specification(path, file.read()))
                except (OSError, ValueError) as error:
                    found.append(Specification(path, "", [], str(error)))
    return [each for each in found if each.kind or each.unreadable]


def stale(specifications: Sequence[Specification]) -> list[Finding]:
    found = []
    for each in specifications:
        if each.unreadable:
            what = f"cannot be read: {each.unreadable}"
            found.append(Finding(STALE, UNKNOWN, what, each.path, "run it as root"))
        elif each.missing:
            first, count = each.missing[0], len(each.missing)
            others = f" and {count - 1} more" if count > 1 else ""
            what = f"is stale: this host has no {first}{others}"
            ours = os.path.basename(each.path).startswith("vcuda")
            if each.kind.startswith("nvidia.com/") and not ours:
                hint = f"run 'nvidia-ctk cdi generate --output={each.path}'"
            elif each.kind == names.CDI_KIND:
                hint = "run 'vcuda cdi generate'"
            else:
                hint = f"run 'vcuda cdi generate --kind {each.kind}'"
            found.append(Finding(STALE, WARNING, what, each.path, hint))
    kinds = ", ".join(each.kind for each in specifications)
    what = f"{kinds}; whole GPUs that engines give by it have no record" if kinds else _NONE
    return found or [Finding(STALE, OK, what)]


def _specification(path: str, text: str) -> Specification:
    kind = _KIND.search(text)
    if not kind:
        return Specification(path, "", [])
    host_paths = [value for key, value in _PATH.findall(text) if key == "hostPath"]
    # A node's `path` is the container's, and also the host's unless a hostPath is given. A hook's
    # is the host's.
    paths = [
        value
        for key, value in _PATH.findall(text)
        if key == "path" and not any(other.endswith(value) for other in host_paths)
    ]
    named = dict.fromkeys(host_paths + paths)
    return Specification(path, kind[1], [name for name in named if not os.path.exists(name)])
