"""Every engine that the tests start, by its name."""

from __future__ import annotations

import pytest

from support.engines.base import Engine
from support.engines.containerd import Ctr, CtrV2
from support.engines.containerd_cri import ContainerdCri, ContainerdCriV2
from support.engines.crio import Crio, CrioV2
from support.engines.docker import Docker, DockerV2
from support.engines.low_level import CrunV2, RuncV1, RuncV2
from support.engines.podman import Podman, PodmanV2

# Of tests with the fixture `cri`.
each_cri = pytest.mark.parametrize("cri", ["containerd-cri", "crio"], indirect=True)
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (
        RuncV1, RuncV2, CrunV2, Docker, DockerV2,
        Ctr, CtrV2, ContainerdCri, ContainerdCriV2, Crio, CrioV2, Podman, PodmanV2,
    )
}  # fmt: skip
