"""The placement decision for a pod, made before its containers are created: GPUs and policy.

The scheduler extender writes the placement on the pod (``vcuda.io/placement-decision``). The node
agent stores it, with the settings from the pod's other annotations, as a file per pod UID, which
the claim reads. The amounts come from the container's own request: a decision says where, never how
much. Only for HAMi's resources they come from the pod's object, where the agent reads them.
"""

from __future__ import annotations

from ..model import jsontree
from ..model.allocation import GpuShare
from ..model.record import Record
from ..model.request import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_MOST_CONTAINERS = 100
_MOST_SHARES = 64
_LONGEST_UUID = 100
_LONGEST_OWNER = 330  # a kind and a name of the API
_OF_SHARE = ("uuid", "core_percent", "memory_bytes")


class Amounts(Record):
    """A container's amounts as its pod's object gives them, by HAMi's resources.

    any_core: no compute was named; the least is reserved, and the container may use what the
    others leave.
    """

    def __init__(self, parts: Sequence[Part], any_core: bool = False) -> None:
        self.parts, self.any_core = tuple(parts), any_core

    @property
    def gpus(self) -> int:
        return sum([len(part.sizes) for part in self.parts])

    def as_json(self) -> dict[str, Any]:
        parts = [[part.core, part.memory_bytes, part.memory_percent] for part in self.parts]
        return {"parts": parts, "any_core": self.any_core}


class Decision:
    """containers: the shares of each container that was decided, by its name.

    words: settings of the request, as the container's annotations would give them
    ("policy": "elastic"). init: the pod's containers that end before the others begin, which reuse
    their shares. amounts: of containers for which the kubelet only counts GPUs. owner: what made
    the pod, as "Deployment/train"; "": nothing did.
    """

    def __init__(
        self,
        containers: Mapping[str, list[GpuShare]] | None = None,
        words: Mapping[str, str] | None = None,
        init: Sequence[str] = (),
        amounts: Mapping[str, Amounts] | None = None,
        owner: str = "",
    ) -> None:
        self.containers, self.words = dict(containers or {}), dict(words or {})
        self.init, self.amounts, self.owner = list(init), dict(amounts or {}), owner

    def dump(self) -> str:
        """``{"containers": {"main": [{"uuid", "core_percent", "memory_bytes"}]}}`` and the rest."""
        containers = {
            name: [{field: getattr(share, field) for field in _OF_SHARE} for share in shares]
            for name, shares in self.containers.items()
        }
        more = {
            "words": self.words,
            "init": self.init,
            "amounts": {name: each.as_json() for name, each in self.amounts.items()},
            "owner": self.owner,
        }
        given = {key: value for key, value in more.items() if value}
        return jsontree.dumps({"containers": containers, **given})


def parse(text: str) -> Decision:
    """What `dump` wrote. Raises ValueError: anything else; a pod's author may have written it."""
    tree: Any = jsontree.loads(text)
    if not isinstance(tree, dict):
        raise ValueError("not a decision")
    containers: Any = tree.get("containers")
    words, init = tree.get("words", {}), tree.get("init", [])
    owner, amounts = tree.get("owner", ""), tree.get("amounts", {})
    tables = (containers, words, amounts)
    if not (all(isinstance(each, dict) for each in tables) and isinstance(init, list)):
        raise ValueError("not a decision")
    if max(len(containers), len(amounts)) > _MOST_CONTAINERS:
        raise ValueError("more containers than a pod has")
    if not all(isinstance(word, str) for word in [*words.values(), *init, owner]):
        raise ValueError("a value that is not a string")
    if len(owner) > _LONGEST_OWNER:
        raise ValueError("an owner longer than a name")
    shares = {name: _shares(listed) for name, listed in containers.items()}
    parsed = {name: parse_amounts(each) for name, each in amounts.items()}
    return Decision(shares, words, init, parsed, owner)


def parse_amounts(tree: Any) -> Amounts:
    """Read what `Amounts.as_json` returned. Raises ValueError: anything else."""
    listed: Any = tree.get("parts") if isinstance(tree, dict) else None
    any_core: Any = tree.get("any_core") if isinstance(tree, dict) else None
    if not (isinstance(listed, list) and 1 <= len(listed) <= 64 and type(any_core) is bool):
        raise ValueError("not amounts of GPUs")
    for part in listed:
        right = (
            isinstance(part, list)
            and len(part) == 3
            and all(number is None or (type(number) is int and number > 0) for number in part)
            and part[0] is not None
            and part[0] <= 6400
            and (part[1] or 1) < 1 << 60
            and (part[2] or 1) <= 100
        )
        if not right:
            raise ValueError("invalid part of a GPU")
    return Amounts([Part(*part) for part in listed], any_core)


def _shares(shares: Any) -> list[GpuShare]:
    if not isinstance(shares, list) or not 1 <= len(shares) <= _MOST_SHARES:
        raise ValueError("not a list of shares")
    return [_share(share) for share in shares]


def _share(share: Any) -> GpuShare:
    if not isinstance(share, dict):
        raise ValueError("a share that is not an object")
    values: list[Any] = [share.get(field) for field in _OF_SHARE]
    uuid, core, memory = values
    numbers = type(core) is int and type(memory) is int
    named = isinstance(uuid, str) and len(uuid) <= _LONGEST_UUID
    if not (named and numbers and 1 <= core <= 100 and 0 < memory < 1 << 64):
        raise ValueError("a share that makes no sense")
    return GpuShare(uuid, memory, core)
