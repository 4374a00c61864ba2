"""Every engine that the tests start, by its name."""

from __future__ import annotations

from support.engines.base import Engine
from support.engines.containerd import Ctr, CtrV2
from support.engines.cri import Cri, CriV2
from support.engines.docker import Docker, DockerV2
from support.engines.low_level import CrunV2, RuncV1, RuncV2
from support.engines.podman import Podman, PodmanV2

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (
        RuncV1, RuncV2, CrunV2, Docker, DockerV2,
        Ctr, CtrV2, Cri, CriV2, Podman, PodmanV2,
    )
}  # fmt: skip
