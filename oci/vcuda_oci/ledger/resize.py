"""Change the share of a running container: record and page change together.

    1. record: `becoming` is the new share, `shares` the larger of old and new in each figure
    2. page:   the new share, in place
    3. record: `shares` is the new share

So what a page still grants is never promised to another container. An interrupted change is
finished by the next change, a claim that lacks room, a restart of the container or the agent's
sweep.
"""

from __future__ import annotations

from ..host.host import Host
from ..model import policies
from ..model.allocation import Allocation, GpuShare
from ..model.errors import VcudaError
from ..model.sizes import share_bytes
from ..pages.limits_in_place import OpenPage, Turn
from ..placement.eligible import Refused
from ..placement.free import resized
from ..placement.rules import Rules
from . import events, liveness
from .ledger import Ledger, broken_record, unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TURN_SECONDS = 5.0
_WORDS = (policies.CORE_LIMIT, policies.WEIGHT, policies.PRIORITY, policies.LATENCY)


def wanted(
    ledger: Ledger,
    host: Host,
    allocation: Allocation,
    at: int,
    words: Mapping[str, str],
    rules: Rules,
) -> tuple[GpuShare, bool]:
    """The allocation's share number `at` with `words` changed (core, memory, policy), and whether
    it needs room of ended containers, so that a sweep must come first.

    Changes nothing. Raises VcudaError: invalid words, or more than is free.
    """
    share = allocation.shares[at]
    gpu = host.gpu(share.uuid)
    if gpu is None:
        raise VcudaError("is not in this machine", share.uuid, "see 'vcuda gpus'")
    core, memory = _core(words, share), share.memory_bytes
    if "memory" in words:
        memory = share_bytes(words["memory"], "--memory")
    terms = _terms(words, share, core)
    allocations, broken = ledger.read()
    others = [other for other in allocations if other.id != allocation.id]
    if broken and (core > share.core_percent or memory > share.memory_bytes):
        raise broken_record(*broken[0])

    def beside(those: list[Allocation]) -> GpuShare | Refused:
        taken = [its for other in those for its in other.reserved]
        answer = resized(share, gpu, taken, core, memory, terms, rules)
        if isinstance(answer, Refused) or memory <= share.memory_bytes:
            return answer
        from . import rotation  # only where shares grow

        return rotation.refusal(answer, host.gpus, taken) or answer

    answer = beside(others)
    crowded = isinstance(answer, Refused)
    if crowded:
        answer = beside([other for other in others if liveness.is_alive(other)])
    if isinstance(answer, Refused):
        raise VcudaError(answer.reason, allocation.id, "ask for less, or free a share")
    return answer, crowded


def change(ledger: Ledger, allocation: Allocation, shares: list[GpuShare]) -> Allocation:
    """The allocation with `shares`, of the same GPUs. Raises VcudaError.

    The caller holds the ledger's lock, and has swept if the change needs the room.
    """
    larger = [_larger(*pair) for pair in zip(allocation.shares, shares)]
    changed = _write(ledger, allocation.replaced(becoming=shares, shares=larger))
    text = f"{events.of(changed)}; it had {events.of(allocation)}"
    ledger.record_event(events.LIMIT_CHANGED, changed, text)
    return changed


def finish(ledger: Ledger) -> list[str]:
    """Finish interrupted changes; return the ids. A change without its page stays."""
    ended = []
    for allocation in ledger.read()[0]:
        if allocation.becoming:
            try:
                changed = _write(ledger, allocation)
            except VcudaError:
                continue
            ended.append(changed.id)
            text = f"{events.of(changed)}; the change had been cut short"
            ledger.record_event(events.LIMIT_CHANGED, changed, text)
    return ended


def _write(ledger: Ledger, allocation: Allocation) -> Allocation:
    path = f"{ledger.containers}/{allocation.id}/limits"
    after = allocation.becoming or allocation.shares
    changed = allocation.replaced(shares=after, becoming=None)
    try:
        with Turn(ledger.state_dir, TURN_SECONDS) as mine:
            if not mine:
                what = f"another process has held the pages for {TURN_SECONDS:.0f} s"
                raise VcudaError(what, ledger.state_dir, "find it with 'fuser pages.lock'")
            page = OpenPage(path, allocation.shares)
            try:
                ledger.record(allocation)
                page.write(after)
                ledger.record(changed)
            finally:
                page.close()
    except ValueError as error:
        raise VcudaError(str(error), path, "start the container again") from error
    except OSError as error:
        raise unwritable(path, error) from error
    return changed


def _larger(old: GpuShare, new: GpuShare) -> GpuShare:
    """The larger of each figure; the policy of the old share."""
    core = max(old.core_percent, new.core_percent)
    return old.replaced(
        memory_bytes=max(old.memory_bytes, new.memory_bytes),
        core_percent=core,
        core_ceiling_percent=max(old.core_ceiling_percent, core),
    )


def _core(words: Mapping[str, str], share: GpuShare) -> int:
    text = words.get("core", str(share.core_percent))
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= 100):
        hint = "write a whole number from 1 to 100, percent of one GPU"
        raise VcudaError(f"core cannot be '{text}'", "--core", hint)
    return int(text)


def _terms(words: Mapping[str, str], share: GpuShare, core: int) -> policies.Terms:
    """The policy's settings: those not named stay if the policy has them; a ceiling is at least the
    core.
    """
    policy = words.get("policy", share.policy)
    kept = {
        policies.CORE_LIMIT: max(share.core_ceiling_percent, core),
        policies.WEIGHT: share.weight,
        policies.PRIORITY: share.priority,
    }
    latency = {policies.LATENCY: share.latency}
    both = set(policies.WORDS.get(policy, ())) & set(policies.WORDS[share.policy])
    given = {word: words[word] for word in _WORDS if word in words}
    given = {**latency, **{word: str(kept[word]) for word in both}, **given, "policy": policy}
    if policy == policies.ROTATE:
        what = "policy rotate cannot be given to a running container"
        raise VcudaError(what, "--policy", "start it with this policy")
    return policies.parse(given, core, "--policy" if "policy" in words else share.uuid)
