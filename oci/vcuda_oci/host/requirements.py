"""``NVIDIA_REQUIRE_*``: what an image demands of the driver and the GPUs, with NVIDIA's meaning.

A value is alternatives separated by spaces, each of conditions joined by commas:
``cuda>=12.4 brand=tesla,driver>=525,driver<526``. Every variable must hold. Source: NVIDIA's
container toolkit, internal/requirements, and libnvidia-container's dsl.c.
"""

from __future__ import annotations

from ..model.errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.gpu import Gpu
    from .host import Host

_PREFIX = "NVIDIA_REQUIRE_"
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_OPERATORS = ("!=", "<=", ">=", "=", "<", ">")
_VERSIONS = ("cuda", "driver", "arch")


def check(env: Mapping[str, str], host: Host, gpus: Sequence[Gpu]) -> None:
    """Raises VcudaError: the driver, or a GPU that the container gets, is not as the image demands.

    Conditions on what we do not know (other names, such as jetpack) are left out, as NVIDIA does.
    """
    if env.get(_DISABLE, "") in _TRUE:
        return
    demands = {name: value for name, value in env.items() if name.startswith(_PREFIX)}
    version = ".".join(env.get("CUDA_VERSION", "").split(".")[:2])
    if _is_version(version) and not env.get(_PREFIX + "CUDA"):
        demands["CUDA_VERSION"] = "cuda>=" + version  # an image of before NVIDIA_REQUIRE_CUDA
    for name, value in sorted(demands.items()):
        for gpu in gpus:
            facts = {
                "cuda": host.cuda,
                "driver": host.version,
                "arch": gpu.arch,
                "brand": gpu.brand,
            }
            if not _holds(value, facts, name):
                told = ", ".join(f"{key} {fact or 'unknown'}" for key, fact in facts.items())
                raise VcudaError(
                    f"'{value}' does not hold: {gpu.uuid} has {told}",
                    f"env {name}",
                    f"take an older image, or a newer driver; {_DISABLE}=1 skips this",
                )


def _holds(value: str, facts: Mapping[str, str], name: str) -> bool:
    alternatives = []
    for alternative in value.split():
        known = [
            answer
            for condition in alternative.split(",")
            if condition and (answer := _condition(condition, facts, name)) is not None
        ]
        if known:
            alternatives.append(all(known))
    return any(alternatives) or not alternatives


def _condition(condition: str, facts: Mapping[str, str], name: str) -> bool | None:
    """Whether it holds; None: it is about something that we do not know."""
    at = next((i for i, character in enumerate(condition) if character in "<>=!"), -1)
    rest = condition[at:]
    operator = next((one for one in _OPERATORS if rest.startswith(one)), "")
    key, wanted = condition[:at].lower(), rest[len(operator) :]
    if at < 1 or not operator or not wanted:
        raise _senseless(condition, name)
    if key not in facts:
        return None
    if key in _VERSIONS:
        if not _is_version(wanted):
            raise _senseless(condition, name)
        order = _order(facts[key], wanted)
    elif operator in ("=", "!="):
        order = int(facts[key].lower() != wanted.lower())
    else:
        raise _senseless(condition, name)
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[operator]


def _is_version(text: str) -> bool:
    return all(part.isascii() and part.isdigit() and len(part) <= 9 for part in text.split("."))


def _order(version: str, other: str) -> int:
    """-1, 0, 1; 12.0 is 12. A version that the driver did not tell is older than all."""
    mine, theirs = (
        [int(part) for part in text.split(".") if part.isdigit()] for text in (version, other)
    )
    length = max(len(mine), len(theirs))
    mine += [0] * (length - len(mine))
    theirs += [0] * (length - len(theirs))
    return (mine > theirs) - (mine < theirs)


def _senseless(condition: str, name: str) -> VcudaError:
    return VcudaError(
        f"'{condition}' is no condition",
        f"env {name}",
        f"write it like cuda>=12.4, or set {_DISABLE}=1",
    )
