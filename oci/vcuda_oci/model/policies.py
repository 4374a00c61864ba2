"""A request's terms: which shares may use more of a GPU's time than they reserve, and how soon;
after which idle time a container is suspended; what holds the share.
"""

from __future__ import annotations

from .durations import parse_seconds
from .errors import VcudaError
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FIXED = "fixed"
ELASTIC = "elastic"
WEIGHTED = "weighted"
BEST_EFFORT = "best-effort"
# As fixed; overcommitted memory is not managed: the container takes turns on the GPU as a whole.
ROTATE = "rotate"

CORE_LIMIT, WEIGHT, PRIORITY = "core-limit", "weight", "priority"
# Every policy takes this one.
LATENCY = "latency"
NORMAL, LOW = "normal", "low"
IDLE_SUSPEND = "idle-suspend"
ISOLATION = "isolation"
# auto: turns; a GPU instance where no share fits and a GPU is in MIG mode.
AUTO, TURNS, MIG, MPS = "auto", "turns", "mig", "mps"
ISOLATIONS = (AUTO, TURNS, MIG, MPS)
DEFAULT_WEIGHT = 100
MOST_WEIGHT = 10_000
MOST_PRIORITY = 1000

# The settings that each policy takes beside `core`.
WORDS = {
    FIXED: (),
    ELASTIC: (CORE_LIMIT, PRIORITY),
    WEIGHTED: (WEIGHT, PRIORITY),
    BEST_EFFORT: (),
    ROTATE: (),
}


class Terms(Record):
    """A policy and its settings; a setting that the policy does not take has its default.

    core_limit: percent of one GPU, the most that elastic gets. weight: 1..10000, of weighted.
    priority: 0..1000, the higher is served first. latency: LOW cuts into the turns of others.
    idle_suspend: seconds without GPU work after which the container is suspended; 0: never; None:
    as the settings say. isolation: one of ISOLATIONS; "": as the settings say.
    """

    def __init__(
        self,
        policy: str = FIXED,
        core_limit: int = 100,
        weight: int = DEFAULT_WEIGHT,
        priority: int = 0,
        latency: str = NORMAL,
        idle_suspend: int | None = None,
        isolation: str = "",
    ) -> None:
        self.policy, self.core_limit, self.idle_suspend = policy, core_limit, idle_suspend
        self.weight, self.priority, self.latency = weight, priority, latency
        self.isolation = isolation

    def as_json(self) -> dict[str, object]:
        """The settings that the policy takes; the latency, unless it is normal; the idle time and
        the isolation, if the request names one.
        """
        words = [word.replace("-", "_") for word in WORDS[self.policy]]
        taken: dict[str, object] = {word: getattr(self, word) for word in words}
        if self.latency != NORMAL:
            taken[LATENCY] = self.latency
        if self.idle_suspend is not None:
            taken["idle_suspend"] = self.idle_suspend
        if self.isolation:
            taken[ISOLATION] = self.isolation
        return {"policy": self.policy, **taken}


def parse(words: Mapping[str, str], core: int, where: str) -> Terms:
    """Read the policy from `words`, for `core` percent (150: one GPU and half of another).

    A core-limit selects elastic, unless `words` name a policy. Raises VcudaError: unknown policy or
    latency, a setting that the policy does not take, a number or a time out of range.
    """
    policy = words.get("policy", ELASTIC if CORE_LIMIT in words else FIXED)
    if policy not in WORDS:
        raise VcudaError(f"policy '{policy}' is not offered", where, f"use {_listed(list(WORDS))}")
    for word in (CORE_LIMIT, WEIGHT, PRIORITY):
        if word in words and word not in WORDS[policy]:
            takers = _listed([name for name in WORDS if word in WORDS[name]])
            raise VcudaError(
                f"{word} means nothing with policy {policy}",
                where,
                f"leave it out, or use {takers}",
            )
    # A whole GPU cannot grow; of 150, the half can.
    least = core % 100 or 100
    return Terms(
        policy,
        _number(words, CORE_LIMIT, where, least, 100, 100),
        _number(words, WEIGHT, where, 1, MOST_WEIGHT, DEFAULT_WEIGHT),
        _number(words, PRIORITY, where, 0, MOST_PRIORITY, 0),
        _latency(words, where),
        parse_seconds(words[IDLE_SUSPEND], IDLE_SUSPEND, where) if IDLE_SUSPEND in words else None,
        isolation_of(words[ISOLATION], where) if ISOLATION in words else "",
    )


def isolation_of(text: str, where: str) -> str:
    """Raises VcudaError: not one of ISOLATIONS."""
    if text in ISOLATIONS:
        return text
    hint = f"use {_listed(list(ISOLATIONS))}"
    if text == "shim":
        hint = "use turns, where the shim paces its container alone while no turn keeper runs"
    raise VcudaError(f"isolation '{text}' is not offered", where, hint)


def describe(
    policy: str, core_limit: int, weight: int, priority: int, latency: str = NORMAL
) -> str:
    """Such as "elastic to 80 %, priority 5, low latency"."""
    detail = {ELASTIC: f" to {core_limit} %", WEIGHTED: f" {weight}"}.get(policy, "")
    detail += f", priority {priority}" if priority else ""
    return policy + detail + (f", {latency} latency" if latency != NORMAL else "")


def _latency(words: Mapping[str, str], where: str) -> str:
    text = words.get(LATENCY, NORMAL)
    if text not in (NORMAL, LOW):
        raise VcudaError(f"{LATENCY} cannot be '{text}'", where, f"use {NORMAL} or {LOW}")
    return text


def _number(
    words: Mapping[str, str], word: str, where: str, least: int, most: int, default: int
) -> int:
    text = words.get(word, str(default))
    right = text.isascii() and text.isdigit() and len(text) <= 6
    if not (right and least <= int(text) <= most):
        raise VcudaError(
            f"{word} cannot be '{text}'", where, f"write a whole number from {least} to {most}"
        )
    return int(text)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
