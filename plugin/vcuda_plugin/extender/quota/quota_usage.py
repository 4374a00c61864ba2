"""What namespaces use of their quotas, and which groups of nodes they may still use.

A pod counts from the moment at which it is assumed on a node to its end, once for each GPU model
that it is or may be bound to. The caller holds the cluster's lock, so that a quota checked at a
bind still holds when the pod is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.gpu_arrays import Rows
from ..model.pod_request import PodAsk
from .quota_limits import Limit, cards

EXCEEDED = "ExceedsGPUQuota"


class Group(NamedTuple):
    """The nodes with one model and one pool, by their labels; "": no label."""

    model: str = ""
    pool: str = ""


NO_GROUP = Group()


class Over(NamedTuple):
    """Why a namespace's pod may not go to a group. never: not even once other pods have ended."""

    reason: str
    never: bool


@dataclass
class _Charge:
    """What a pod counts, and the group of each node that it is or may be bound to."""

    namespace: str
    core: int
    groups: dict[str, Group] = field(default_factory=dict)

    @property
    def models(self) -> set[str]:
        return {group.model for group in self.groups.values()}


class Quota:
    """Limits and usage of all namespaces.

    limits: by namespace; a missing namespace has no limit. trouble: why the limits are not known,
    in which case nothing may be placed; "": they are known.
    """

    def __init__(self) -> None:
        self.limits: Mapping[str, Limit] = {}
        self.trouble = ""
        self._charges: dict[str, _Charge] = {}
        self._used: dict[tuple[str, str], int] = {}
        self._numbers: dict[Group, int] = {NO_GROUP: 0}
        self._rows: NDArray[Any] = np.zeros(64, np.int32)

    def put_node(self, name: str, row: int, group: Group, uids: Iterable[str]) -> None:
        """Set the node's group, and count its pods there. uids: of its pods."""
        if row >= len(self._rows):
            self._rows = np.append(self._rows, np.zeros(row + 1, np.int32))
        self._rows[row] = self._numbers.setdefault(group, len(self._numbers))
        for uid in uids:
            if uid in self._charges:
                self._set(uid, name, group)

    def charge(self, uid: str, node: str, group: Group, namespace: str, core: int) -> None:
        """Count the pod on this node; repeating it changes nothing. core: percent of one GPU."""
        if core:
            self._charges.setdefault(uid, _Charge(namespace, core))
            self._set(uid, node, group)

    def release(self, uid: str, node: str) -> None:
        if uid in self._charges:
            self._set(uid, node, None)

    def used(self, namespace: str, model: str, but: str = "") -> int:
        """Return the usage in percent of one GPU. but: the UID of a pod that is left out."""
        used, own = self._used.get((namespace, model), 0), self._charges.get(but)
        if own and own.namespace == namespace and model in own.models:
            used -= own.core
        return used

    def held(self, namespace: str, uids: Collection[str]) -> int:
        """Return what these pods count in the namespace, in percent of one GPU."""
        charges = (self._charges.get(uid) for uid in uids)
        return sum(each.core for each in charges if each and each.namespace == namespace)

    def over(self, ask: PodAsk, group: Group, freed: int = 0) -> Over | None:
        """Return why the pod may not go to the group; None: it may.

        freed: percent that the namespace gets back first, from pods that end.
        """
        limit = self.limits.get(ask.namespace)
        if limit is None:
            return None
        prefix = f"{EXCEEDED}: namespace {ask.namespace}"
        if limit.pools and group.pool not in limit.pools:
            return Over(
                f"{prefix} may use the GPUs of {', '.join(limit.pools)} only"[:200], never=True
            )
        most = limit.core.get(group.model)
        if most is None:
            return Over(
                f"{prefix} has no quota of {group.model or 'GPUs without a model'}", never=True
            )
        used = self.used(ask.namespace, group.model, ask.uid) - freed
        if used + ask.most_core <= most:
            return None
        what = f"uses {cards(used)} of {cards(most)} cards of {group.model}"
        return Over(f"{prefix} {what}; {cards(ask.most_core)} asked", never=ask.most_core > most)

    def over_groups(self, ask: PodAsk, rows: Rows) -> tuple[NDArray[Any], list[Over | None]]:
        """Return each row's index into the groups, and the answer of `over` for each group."""
        limited = ask.namespace in self.limits
        found = [self.over(ask, group) if limited else None for group in self._numbers]
        return self._rows[rows], found

    def report(self) -> list[dict[str, Any]]:
        """Return usage and limit in cards, for each namespace and model that has either."""
        pairs = {pair for pair, core in self._used.items() if core}
        pairs |= {(name, model) for name, limit in self.limits.items() for model in limit.core}
        found: list[dict[str, Any]] = []
        for namespace, model in sorted(pairs):
            limit = self.limits.get(namespace)
            most = limit.core.get(model, 0) / 100 if limit else None
            used = self.used(namespace, model) / 100
            pools = list(limit.pools) if limit else []
            row = {"namespace": namespace, "model": model, "used": used, "limit": most}
            found.append({**row, "pools": pools})
        return found

    def _set(self, uid: str, node: str, group: Group | None) -> None:
        """Count the pod in this group for this node; None: stop counting it for the node."""
        charge = self._charges[uid]
        before = charge.models
        if group is None:
            charge.groups.pop(node, None)
        else:
            charge.groups[node] = group
        after = charge.models
        for model in before ^ after:
            pair, sign = (charge.namespace, model), 1 if model in after else -1
            self._used[pair] = self._used.get(pair, 0) + sign * charge.core
            if not self._used[pair]:
                del self._used[pair]
        if not charge.groups:
            del self._charges[uid]
