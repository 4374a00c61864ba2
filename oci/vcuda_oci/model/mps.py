"""What a request cannot have under MPS: pure, so that schedulers refuse it as the node does."""

from __future__ import annotations

from . import policies
from .errors import VcudaError
from .policies import Terms
from .request import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WHAT = "isolation mps"


def check(terms: Terms, parts: Sequence[Part], where: str) -> None:
    """Raises VcudaError: one container with these parts asks for what MPS cannot give."""
    if terms.policy != policies.FIXED:
        what = f"{WHAT}: a share cannot be {terms.policy}"
        raise VcudaError(what, where, "use policy fixed")
    if terms.latency != policies.NORMAL:
        what = f"{WHAT}: latency means nothing, since no container waits for a turn"
        raise VcudaError(what, where, "leave latency out")
    if terms.idle_suspend:
        raise VcudaError(f"{WHAT}: cannot be suspended", where, "leave idle-suspend out")
    if len(parts) != 1 or not 1 <= parts[0].core <= 100:
        what = f"{WHAT}: a container has a share of one GPU; it asks for more"
        raise VcudaError(what, where, "ask for at most core 100")
