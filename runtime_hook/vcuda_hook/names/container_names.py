"""Containers' names for display, and the containers that a user's words name.

A pod's container has the cluster's name, another one its engine's. Users choose names. One is shown
only if it stands for one container and cannot be taken for another's id; otherwise the id is shown.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError

from . import engine_files
from .engine_files import Described

_MOST_CANDIDATES = 8
_MAY_BE = "may be "
_WORD = re.compile(r"[\w@.-]+")


def of(allocations: Sequence[Allocation]) -> dict[str, Described]:
    """Names and images by allocation id, without names that must not be shown."""
    found = {each.id: description_of(each) for each in allocations}
    taken = [id for each in allocations for id in (each.id, each.container_id)]
    taken += [each.name for each in found.values()]
    times = Counter(taken)
    # No id has a slash, and a pod's name is unique in the cluster.
    return {
        id: each if "/" in each.name or times[each.name] == 1 else each._replace(name="")
        for id, each in found.items()
    }


def description_of(allocation: Allocation) -> Described:
    """ "namespace/pod/container" or the engine's name, and the image."""
    described = engine_files.described(allocation.container_id, allocation.engine)
    if allocation.pod:
        name = "/".join(allocation.pod.get(key, "?") for key in ("namespace", "name", "container"))
        return described._replace(name=name)
    return described


def name_of(allocation: Allocation) -> str:
    """ "namespace/pod/container", the engine's name for it, or ""."""
    return description_of(allocation).name


def lines(allocations: Sequence[Allocation]) -> dict[str, str]:
    """By id, the name that lists show, or the whole id: for lines of answers. The id of a named
    slice is its name.
    """
    found = of(allocations)
    return {
        each.id: each.id if each.is_named_slice else found[each.id].name or each.id
        for each in allocations
    }


def shown(ledger: Ledger, allocation: Allocation) -> str:
    """The container as `lines` has it."""
    others = [each for each in ledger.read()[0] if each.id != allocation.id]
    return lines([*others, allocation])[allocation.id]


def named(text: str, allocations: Sequence[Allocation]) -> str:
    """The text with the names of `lines` for ids."""
    names = lines(allocations)
    return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def name_in(error: VcudaError, allocations: Sequence[Allocation]) -> None:
    """Replace ids by names in the error, except in a list of candidates, which has both."""
    error.where, error.hint = (named(each, allocations) for each in (error.where, error.hint))
    if not error.what.startswith(_MAY_BE):
        error.what = named(error.what, allocations)


def forms_of_pod(pod: str) -> tuple[str, ...]:
    """What may name "namespace/pod/container" or another container: itself, or a part of it."""
    namespace, _, rest = pod.partition("/")
    name, _, container = rest.rpartition("/")
    return (pod, f"{namespace}/{name}", name, f"{name}/{container}") if name else (pod,)


def find_record(ledger: Ledger, word: str) -> Allocation:
    """The record with this id or name. Raises VcudaError: none, several, or a broken one."""
    allocations, broken = ledger.read()
    for path, reason in broken:
        if path.endswith(f"/{word}.json"):
            raise broken_record(path, reason)
    return find(word, allocations)


def find(word: str, allocations: Sequence[Allocation]) -> Allocation:
    """The record that `word` stands for. Raises VcudaError: none, several."""
    found = all_of(word, allocations)
    if len(found) == 1:
        return found[0]
    if found:
        candidates = ", ".join(map(_with_name, found[:_MOST_CANDIDATES]))
        raise VcudaError(_MAY_BE + candidates, word, "write more of the name, or the id")
    raise VcudaError("no allocation of this id or name", word, hint_of(word, allocations))


def hint_of(word: str, allocations: Sequence[Allocation]) -> str:
    """The hint for a name that no container has: a similar name, if there is one."""
    names = sorted({name for each in allocations if (name := name_of(each))})
    begun = [name for name in names if word and name.startswith(word)]
    near = begun or difflib.get_close_matches(word, names, 1)
    return f"did you mean {near[0]}? See 'vcuda ps'" if near else "see 'vcuda ps'"


def all_of(word: str, allocations: Sequence[Allocation]) -> list[Allocation]:
    """The records that `word` may stand for: an allocation's or container's id or its first
    characters, a name as `vcuda ps` shows it, or a pod's name with or without namespace or
    container. A full id comes before names, a pod's full name before a part of one.
    """
    if not word:
        return []
    for key in ("id", "container_id"):
        exact = [each for each in allocations if getattr(each, key) == word]
        if len(exact) == 1:
            return exact
    found = [
        each
        for each in allocations
        if each.id.startswith(word) or each.container_id.startswith(word)
    ]
    found += [each for each in allocations if each not in found and name_of(each) == word]
    pods = [each for each in allocations if each.pod]
    return found or [each for each in pods if word in forms_of_pod(name_of(each))]


def _with_name(allocation: Allocation) -> str:
    name = name_of(allocation)
    return f"{allocation.id} ({name})" if name else allocation.id
