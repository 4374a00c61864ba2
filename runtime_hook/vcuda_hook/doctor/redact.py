"""Removal of secrets from texts and trees that leave this host: pure.

What may be a secret is removed; names of containers, images, pods and GPUs stay.
"""

from __future__ import annotations

import re
from typing import Any

REMOVED = "<removed>"
_SENSITIVE = r"token|secret|passw|passphrase|api[-_]?key|credential|private[-_]?key"
# Bounded, because a long word would otherwise be searched from each of its characters.
_WITHIN = rf"[\w.-]{{0,64}}(?:{_SENSITIVE})[\w.-]{{0,64}}"
_KEY = re.compile(_WITHIN, re.IGNORECASE)
# The one group, if a pattern has it, stays; the rest of the match is removed.
_PATTERNS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        (r"(\b(?:Bearer|Basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE),
        (r"((?:authorization|cookie)[\"']?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE),
        (r"(\w://)[^\s\"'<>]{1,512}@", 0),
        (r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}", 0),
        (r"\b(?:gh[pousr]_|github_pat_|hf_|glpat-|nvapi-|dckr_pat_)[\w-]{12,}", 0),
        (r"\b(?:xox[a-z]-|sk-|AKIA)[\w-]{12,}", 0),
        (
            rf"((?:{_WITHIN})\\?[\"']?\s*[:=]\s*|--(?:{_WITHIN})\s+)"
            r"(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\S+)",
            re.IGNORECASE,
        ),
        # A variable's value; our own are needed to understand a request.
        (r"((?<![\w.])(?!VCUDA_|NVIDIA_|CUDA_)[A-Z][A-Z0-9_]{2,}=)(?:\"[^\"]*\"|'[^']*'|\S+)", 0),
    )
)  # fmt: skip


def text(value: str) -> str:
    for pattern in _PATTERNS:
        value = pattern.sub(lambda match: (match[1] if match.re.groups else "") + REMOVED, value)
    return value


def tree(value: Any) -> Any:
    """A JSON tree with redacted texts, without values of secret keys, "env" and "annotations"."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [tree(each) for each in value]
    if isinstance(value, dict):
        return {
            text(str(key)): REMOVED if _is_secret(str(key)) else tree(each)
            for key, each in value.items()
        }
    return value


def _is_secret(key: str) -> bool:
    return key.lower() in ("env", "environment", "annotations") or bool(_KEY.fullmatch(key))
