"""JSON schema of a CDI spec file, as SPEC.md of version 0.5.0 describes it.

No package has it; "SHALL" and "REQUIRED" there are what is required here, and no other keys.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_PATH = {"type": "string", "pattern": "^/"}
_NAME = "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"
_NUMBER = {"type": "integer", "minimum": 0}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_NODE = _object(
    {"path": _PATH},
    hostPath=_PATH,
    type={"enum": ["b", "c", "u", "p"]},
    major=_NUMBER,
    minor=_NUMBER,
    fileMode=_NUMBER,
    uid=_NUMBER,
    gid=_NUMBER,
    permissions={"type": "string", "pattern": "^[rwm]+$"},
)
_MOUNT = _object({"hostPath": _PATH, "containerPath": _PATH}, type=_TEXT, options=_list(_TEXT))
_HOOK = _object(
    {"hookName": _TEXT, "path": _PATH}, args=_list(_TEXT), env=_list(_TEXT), timeout=_NUMBER
)
_EDITS = _object(
    {},
    env=_list({"type": "string", "pattern": "^[^=]+="}),
    deviceNodes=_list(_NODE),
    mounts=_list(_MOUNT),
    hooks=_list(_HOOK),
)
# CDI's own reader refuses a device without container edits.
_SOME_EDITS = {
    **_EDITS,
    "anyOf": [
        {"required": [key], "properties": {key: {"minItems": 1}}} for key in _EDITS["properties"]
    ],
}
SCHEMA = _object(
    {
        "cdiVersion": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "kind": {"type": "string", "pattern": "^[a-z][a-zA-Z0-9.-]*[a-z0-9]/[a-z][a-zA-Z0-9_-]*$"},
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "name": {"type": "string", "pattern": _NAME},
                    "containerEdits": _SOME_EDITS,
                },
                annotations={"type": "object"},
            ),
        },
    },
    containerEdits=_EDITS,
    annotations={"type": "object"},
)
