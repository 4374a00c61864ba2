"""NVIDIA_DRIVER_CAPABILITIES is read as by NVIDIA's toolkit."""

from __future__ import annotations

import pytest

from vcuda_oci.model import capabilities
from vcuda_oci.model.errors import VcudaError

EVERY = list(capabilities.ALL)


@pytest.mark.parametrize(
    ("value", "allowed", "expected"),
    [
        ("", EVERY, {"utility", "compute"}),
        (" , ", EVERY, {"utility", "compute"}),
        ("", ["utility", "graphics"], {"utility"}),
        ("all", EVERY, set(EVERY)),
        ("compute,all", ["compute", "video"], {"compute", "video"}),
        ("compute", EVERY, {"compute"}),
        ("video, graphics,video", EVERY, {"video", "graphics"}),
    ],
)
def test_a_value_is_read_as_nvidia_reads_it(
    value: str, allowed: list[str], expected: set[str]
) -> None:
    assert capabilities.requested(value, allowed) == expected


@pytest.mark.parametrize(
    ("value", "allowed", "message"),
    [
        (
            "compute,grafics",
            EVERY,
            "unknown capability 'grafics'; use all or compute, utility, graphics, video, display, "
            "ngx, compat32",
        ),
        (
            "all,Compute",
            EVERY,
            "unknown capability 'Compute'; use all or compute, utility, graphics, video, display, "
            "ngx, compat32",
        ),
        (
            "compute,graphics",
            ["compute", "utility"],
            "capability 'graphics' is not offered here; use compute, utility, or add it to "
            "driver-capabilities",
        ),
        (
            "ngx",
            [],
            "capability 'ngx' is not offered here; use none, or add it to driver-capabilities",
        ),
    ],
)
def test_unknown_or_forbidden_capability_is_one_line(
    value: str, allowed: list[str], message: str
) -> None:
    with pytest.raises(VcudaError) as refused:
        capabilities.requested(value, allowed)
    assert str(refused.value) == f"env NVIDIA_DRIVER_CAPABILITIES: {message}"
