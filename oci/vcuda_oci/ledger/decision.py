"""What was decided for a pod before its containers are created: its GPUs and its policy.

The scheduler extender writes the placement on the pod (``vcuda.io/placement-decision``); the node
agent keeps it, with the words of the pod's other annotations, as a file per pod UID, which the
claim reads. Amounts are the container's own request's: a decision says where, never how much. Only
of HAMi's resources it is the pod's object that says how much, and the agent that reads it there.
"""

from __future__ import annotations

from ..model import jsontree
from ..model.allocation import GpuShare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..model.amounts import Amounts

_MOST_CONTAINERS = 100
_MOST_SHARES = 64
_LONGEST_UUID = 100


class Decision:
    """containers: the shares of each container by its name; one that is not named was not decided.

    words: of the request, as annotations of the container would say them ("policy": "elastic").
    init: the pod's containers that have ended before the others begin, and whose shares these use.
    amounts: what containers ask for of GPUs of which the kubelet knows only how many.
    """

    def __init__(
        self,
        containers: Mapping[str, list[GpuShare]] | None = None,
        words: Mapping[str, str] | None = None,
        init: Sequence[str] = (),
        amounts: Mapping[str, Amounts] | None = None,
    ) -> None:
        self.containers, self.words = dict(containers or {}), dict(words or {})
        self.init, self.amounts = list(init), dict(amounts or {})

    def dump(self) -> str:
        """``{"containers": {"main": [{"uuid", "core_percent", "memory_bytes"}]}}`` and the rest."""
        tree: dict[str, Any] = {
            "containers": {
                name: [
                    {
                        "uuid": share.uuid,
                        "core_percent": share.core_percent,
                        "memory_bytes": share.memory_bytes,
                    }
                    for share in shares
                ]
                for name, shares in self.containers.items()
            }
        }
        if self.words:
            tree["words"] = self.words
        if self.init:
            tree["init"] = self.init
        if self.amounts:
            tree["amounts"] = {name: each.as_json() for name, each in self.amounts.items()}
        return jsontree.dumps(tree)


def parse(text: str) -> Decision:
    """What `dump` wrote. Raises ValueError: anything else; a pod's author may have written it."""
    tree: Any = jsontree.loads(text)
    containers: Any = tree.get("containers") if isinstance(tree, dict) else None
    words: Any = tree.get("words", {}) if isinstance(tree, dict) else None
    init: Any = tree.get("init", []) if isinstance(tree, dict) else None
    if not (isinstance(containers, dict) and isinstance(words, dict) and isinstance(init, list)):
        raise ValueError("not a decision")
    if len(containers) > _MOST_CONTAINERS:
        raise ValueError("more containers than a pod has")
    if not all(isinstance(word, str) for word in [*words.values(), *init]):
        raise ValueError("a word that is no text")
    amounts = _amounts(tree["amounts"]) if "amounts" in tree else {}
    shares = {name: _shares(listed) for name, listed in containers.items()}
    return Decision(shares, words, init, amounts)


def _amounts(tree: Any) -> dict[str, Amounts]:
    from ..model import amounts  # who asks for no virtual GPUs needs none of it

    if not isinstance(tree, dict) or len(tree) > _MOST_CONTAINERS:
        raise ValueError("not amounts of containers")
    return {name: amounts.parse(each) for name, each in tree.items()}


def _shares(shares: Any) -> list[GpuShare]:
    if not isinstance(shares, list) or not 1 <= len(shares) <= _MOST_SHARES:
        raise ValueError("not a list of shares")
    return [_share(share) for share in shares]


def _share(share: Any) -> GpuShare:
    if not isinstance(share, dict):
        raise ValueError("a share that is no object")
    uuid: Any = share.get("uuid")
    core: Any = share.get("core_percent")
    memory: Any = share.get("memory_bytes")
    numbers = type(core) is int and type(memory) is int
    named = isinstance(uuid, str) and len(uuid) <= _LONGEST_UUID
    if not (named and numbers and 1 <= core <= 100 and 0 < memory < 1 << 64):
        raise ValueError("a share that makes no sense")
    return GpuShare(uuid, memory, core)
