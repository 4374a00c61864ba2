"""hooks.d: the hook for Podman and CRI-O, an alternative to vcuda's runtime.

Every engine that uses the folder reads the one file, so its undo record names no engine. Source:
oci-hooks(5), "1.0.0 Hook Schema".
"""

from __future__ import annotations

from typing import Any

from vcuda_oci.edits import edits
from vcuda_oci.model import names

from ..hooks.main import BY_STATUS
from .plan import Options, Plan

ENGINES = ("crio", "podman")
NAME = "hooks"
# /etc/containers/oci/hooks.d is not read by default: seen with Podman 4.3.
FILE = "/usr/share/containers/oci/hooks.d/vcuda.json"
FORM = "json"
NEW = "{}\n"
AFTER = AFTER_REMOVAL = ""  # both notice changes of the folder

_ASKED = "^" + names.ANNOTATION_PREFIX.replace(".", "\\.")


def plan(tree: dict[str, Any], options: Options) -> Plan:
    called = edits.as_hook([options.program, "--config", options.settings, BY_STATUS])
    when = {"always": True} if options.always else {"annotations": {_ASKED: ".*"}}
    planned = Plan(
        [
            (("version",), "1.0.0"),
            (("hook",), called),
            (("when",), when),
            (("stages",), ["createRuntime", "poststop"]),
        ]
    )
    planned.notes.append("an engine that sets hooks_dir looks only there: use --config")
    planned.notes.append(
        "with systemd on cgroup v2, 'systemctl daemon-reload' takes the GPU from every container "
        "that the hook serves; the runtime ('vcuda configure' without --hooks) keeps it"
    )
    return planned


def check(tree: dict[str, Any], planned: Plan, options: Options) -> None:
    """No other file can override this one."""
