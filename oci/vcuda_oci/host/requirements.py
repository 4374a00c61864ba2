"""Check ``NVIDIA_REQUIRE_*``, an image's requirements for the driver and the GPUs.

A value is a list of alternatives, separated by spaces. An alternative is a list of conditions that
must all hold, separated by commas: ``cuda>=12.4 brand=tesla,driver>=525,driver<526``. Every
variable must hold. Source: NVIDIA's container toolkit, internal/requirements, and
libnvidia-container's dsl.c.
"""

from __future__ import annotations

from ..model.errors import VcudaError
from ..model.gpu import Gpu
from .host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PREFIX = "NVIDIA_REQUIRE_"
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_OPERATORS = ("!=", "<=", ">=", "=", "<", ">")
_VERSIONS = ("cuda", "driver", "arch")


def check(env: Mapping[str, str], host: Host, gpus: Sequence[Gpu]) -> None:
    """Raises VcudaError: the driver, or one of the container's GPUs, does not meet a requirement.

    Conditions with other names (such as jetpack) are ignored, as NVIDIA does.
    """
    if env.get(_DISABLE, "") in _TRUE:
        return
    demands = {name: value for name, value in env.items() if name.startswith(_PREFIX)}
    version = ".".join(env.get("CUDA_VERSION", "").split(".")[:2])
    if _is_version(version) and not env.get(_PREFIX + "CUDA"):
        demands["CUDA_VERSION"] = "cuda>=" + version  # an image older than NVIDIA_REQUIRE_CUDA
    for name, value in sorted(demands.items()):
        for gpu in gpus:
            facts = {
                "cuda": host.cuda,
                "driver": host.version,
                "arch": gpu.arch,
                "brand": gpu.brand,
            }
            if not _holds(value, facts, name):
                listed = ", ".join(f"{key} {fact or 'unknown'}" for key, fact in facts.items())
                raise VcudaError(
                    f"'{value}' does not hold: {gpu.uuid} has {listed}",
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
    """Whether a condition holds; None: unknown name."""
    at = next((i for i, character in enumerate(condition) if character in "<>=!"), -1)
    rest = condition[at:]
    operator = next((one for one in _OPERATORS if rest.startswith(one)), "")
    key, wanted = condition[:at].lower(), rest[len(operator) :]
    if at < 1 or not operator or not wanted:
        raise _invalid(condition, name)
    if key not in facts:
        return None
    if key in _VERSIONS:
        if not _is_version(wanted):
            raise _invalid(condition, name)
        order = _order(facts[key], wanted)
    elif operator in ("=", "!="):
        order = int(facts[key].lower() != wanted.lower())
    else:
        raise _invalid(condition, name)
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
    """-1, 0 or 1; 12.0 equals 12. An unknown version ("") is older than all others."""
    numbers, others = (
        [int(part) for part in text.split(".") if part.isdigit()] for text in (version, other)
    )
    length = max(len(numbers), len(others))
    numbers += [0] * (length - len(numbers))
    others += [0] * (length - len(others))
    return (numbers > others) - (numbers < others)


def _invalid(condition: str, name: str) -> VcudaError:
    return VcudaError(
        f"invalid condition '{condition}'",
        f"env {name}",
        f"write it like cuda>=12.4, or set {_DISABLE}=1",
    )
