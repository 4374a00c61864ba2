"""GPU quotas of namespaces, read from the ConfigMap of quotas. Pure.

Source: GPUManager's gpu-quota-admission, docs/gpu-quota.md, for names, defaults and meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from ...kube import json_bytes
from ..model import annotations as known

KEY = "gpu_quota"
_MOST_CARDS = 1_000_000
_EXAMPLE = '{"team": {"quota": {"M40": 8}, "pool": ["public"]}}'


class QuotaPlace(NamedTuple):
    """The ConfigMap of quotas, and a node's labels of model and pool; the first found counts."""

    name: str = "gpuquota"
    namespace: str = "kube-system"
    model_labels: tuple[str, ...] = known.QUOTA_MODEL_LABELS
    pool_labels: tuple[str, ...] = known.QUOTA_POOL_LABELS


DEFAULT_PLACE = QuotaPlace()


class Limit(NamedTuple):
    """The quota of one namespace.

    core: percent of one GPU by model, 100 for a card; a missing model means no quota of it.
    pools: the pools that its pods may use; empty: all.
    """

    core: Mapping[str, int]
    pools: tuple[str, ...]


def load_place(path: str) -> QuotaPlace:
    """Read GPUManager's quota settings from `path`; "": the defaults. Raises VcudaError."""
    if not path:
        return DEFAULT_PLACE
    keys = ("QuotaConfigMapName", "QuotaConfigMapNamespace", "GPUModelLabel", "GPUPoolLabel")
    hint = f"write a JSON object of {', '.join(keys)}"
    try:
        tree = json_bytes.loads(files.read_settings(path))
    except (OSError, ValueError) as error:
        raise VcudaError(f"cannot be read: {error}", path, hint) from error
    # SkipBindTime, GPUManager's sleep before each filter, is ignored: a bind here counts at once.
    unknown = set(tree) - {*keys, "SkipBindTime"} if isinstance(tree, dict) else {"no object"}
    if unknown:
        raise VcudaError(f"unknown: {', '.join(sorted(unknown))}", path, hint)
    if not all(isinstance(tree.get(key, ""), str) for key in keys):
        raise VcudaError("a value that is not a string", path, hint)
    name, namespace, model, pool = (tree.get(key, "") for key in keys)
    default = DEFAULT_PLACE
    return QuotaPlace(
        name or default.name,
        namespace or default.namespace,
        (model,) if model else default.model_labels,
        (pool,) if pool else default.pool_labels,
    )


def parse(config_map: Mapping[str, Any]) -> dict[str, Limit]:
    """Read the limits by namespace from a ConfigMap. Raises ValueError: one line on the fault."""
    data = config_map.get("data")
    text = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"there is no key {KEY}; write {_EXAMPLE}")
    return limits(text)


def limits(text: str) -> dict[str, Limit]:
    """Read the limits by namespace from the value of the key. Raises ValueError as `parse` does."""
    try:
        tree = json_bytes.loads(text.encode())
    except ValueError as error:
        raise ValueError(f"{KEY} is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{KEY} is not an object; write {_EXAMPLE}")
    return {namespace: _limit(namespace, each) for namespace, each in tree.items()}


def cards(core: int) -> str:
    """Format percent of one GPU as a number of cards: 130 is "1.3"."""
    return f"{core / 100:.2f}".rstrip("0").rstrip(".")


def _limit(namespace: str, tree: Any) -> Limit:
    if not isinstance(tree, dict) or set(tree) - {"quota", "pool"}:
        raise ValueError(f"of {namespace[:60]!r}: write an object of quota and pool")
    quota, pool = tree.get("quota") or {}, tree.get("pool") or []
    if not isinstance(quota, dict):
        raise ValueError(f"of {namespace[:60]!r}: quota is not an object of cards by model")
    if not (isinstance(pool, list) and all(isinstance(each, str) for each in pool)):
        raise ValueError(f"of {namespace[:60]!r}: pool is not a list of names")
    core = {}
    for model, count in quota.items():
        right = type(count) in (int, float) and 0 <= count <= _MOST_CARDS
        if not right or (count * 100 % 1 > 1e-6 and count * 100 % 1 < 1 - 1e-6):
            raise ValueError(f"of {namespace[:60]!r}: {model[:60]!r} cannot have {count!r} cards")
        core[model] = round(count * 100)
    return Limit(core, tuple(sorted(set(pool))))
