"""NVIDIA_REQUIRE_* is checked against the driver and the GPUs that the container gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.host import requirements
from vcuda_oci.host.host import Host
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu

# What NVIDIA's own images of CUDA 12.4 carry, shortened.
CUDA_12_4 = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=nvidia,driver>=535,driver<536 brand=geforce,driver>=535,driver<536"
)


def gpu(uuid: str = "GPU-0", arch: str = "9.0", brand: str = "tesla") -> Gpu:
    return Gpu(uuid, 0, 0, 1 << 30, "Soft", "0000:01:00.0", arch, brand)


def holds(
    env: dict[str, str], gpus: tuple[Gpu, ...] = (gpu(),), driver: str = "580.95.05",
    cuda: str = "13.0",
) -> bool:  # fmt: skip
    try:
        requirements.check(env, Host("/", driver, "/lib", list(gpus), cuda), gpus)
    except VcudaError as error:
        assert "\n" not in str(error)
        return False
    return True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", True),
        ("cuda>=12.0", True),
        ("cuda>=13", True),
        ("cuda>=13.0.0", True),
        ("cuda>=13.1", False),
        ("cuda=13", True),
        ("cuda!=13.0", False),
        ("cuda<13", False),
        ("cuda<=13", True),
        ("CUDA>12.9", True),
        ("driver>=525,driver<526", False),
        ("driver>=580.95,driver<581", True),
        ("driver>580.95.5", False),
        ("arch>=9.0", True),
        ("arch>=9.10", False),
        ("brand=tesla", True),
        ("brand=Tesla", True),
        ("brand!=tesla", False),
        ("cuda>=14 brand=tesla,driver>=580", True),
        ("cuda>=14,brand=tesla driver>=590", False),
        ("cuda>=12  brand=geforce", True),
        ("cuda>=12,,brand=tesla", True),
        ("jetpack>=5", True),
        ("jetpack>=5,cuda>=14", False),
        ("jetpack>=5 cuda>=14", False),
    ],
)
def test_a_demand_holds_as_it_does_for_nvidia(value: str, expected: bool) -> None:
    assert holds({"NVIDIA_REQUIRE_CUDA": value}) is expected
    assert holds({"NVIDIA_REQUIRE_CUDA": "cuda>=1", "NVIDIA_REQUIRE_X": value}) is expected


@pytest.mark.parametrize(
    ("driver", "cuda", "brand", "expected"),
    [
        ("550.54", "12.4", "geforce", True),
        ("535.183.1", "12.2", "nvidia", True),
        ("535.183.1", "12.2", "tesla", False),
        ("470.82", "11.4", "tesla", True),
        ("470.82", "11.4", "unknown", True),
        ("525.60", "12.0", "geforce", False),
        ("535.183.1", "", "titan", False),
    ],
)
def test_an_image_of_nvidias_starts_on_the_drivers_it_names(
    driver: str, cuda: str, brand: str, expected: bool
) -> None:
    env = {"NVIDIA_REQUIRE_CUDA": CUDA_12_4, "CUDA_VERSION": "12.4.1"}
    assert holds(env, (gpu(brand=brand),), driver, cuda) is expected


def test_every_gpu_that_is_given_has_to_fit() -> None:
    demand = {"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}
    assert holds(demand, (gpu(), gpu("GPU-1", "8.0")))
    assert not holds(demand, (gpu(), gpu("GPU-1", "7.5")))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("12.4.1", True),
        ("13.0", True),
        ("13.1.0", False),
        ("14", False),
        ("latest", True),
        ("", True),
    ],
)
def test_an_old_image_demands_the_cuda_it_was_made_with(version: str, expected: bool) -> None:
    assert holds({"CUDA_VERSION": version}) is expected
    assert holds({"CUDA_VERSION": version, "NVIDIA_REQUIRE_CUDA": "cuda>=1"})


@pytest.mark.parametrize("word", ["1", "t", "T", "true", "TRUE", "True"])
def test_the_check_can_be_switched_off(word: str) -> None:
    demand = {"NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_REQUIRE_X": "nonsense"}
    assert holds({**demand, "NVIDIA_DISABLE_REQUIRE": word})
    assert not holds({**demand, "NVIDIA_DISABLE_REQUIRE": "0"})
    assert not holds({**demand, "NVIDIA_DISABLE_REQUIRE": "yes"})


def test_refusal_names_the_shortage_and_a_hint() -> None:
    host = Host("/", "580.95.05", "/lib", [gpu()], "13.0")
    with pytest.raises(VcudaError) as refused:
        requirements.check({"NVIDIA_REQUIRE_CUDA": "cuda>=13.1"}, host, host.gpus)
    assert str(refused.value) == (
        "env NVIDIA_REQUIRE_CUDA: 'cuda>=13.1' does not hold: GPU-0 has cuda 13.0, driver "
        "580.95.05, arch 9.0, brand tesla; take an older image, or a newer driver; "
        "NVIDIA_DISABLE_REQUIRE=1 skips this"
    )


@pytest.mark.parametrize("word", ["cuda", "cuda>=", ">=12", "cuda=>12", "cuda>=x", "cuda>=12.",
                                  "cuda==12", "brand>tesla", "cuda>=" + "9" * 500])  # fmt: skip
def test_invalid_condition_is_one_line(word: str) -> None:
    host = Host("/", "580.95.05", "/lib", [gpu()], "13.0")
    with pytest.raises(VcudaError) as refused:
        requirements.check({"NVIDIA_REQUIRE_CUDA": word}, host, host.gpus)
    assert str(refused.value) == (
        f"env NVIDIA_REQUIRE_CUDA: invalid condition '{word}'; write it like cuda>=12.4, or set "
        "NVIDIA_DISABLE_REQUIRE=1"
    )


def test_a_number_without_end_is_one_line_that_ends() -> None:
    host = Host("/", "580.95.05", "/lib", [gpu()], "13.0")
    with pytest.raises(VcudaError) as refused:
        requirements.check({"NVIDIA_REQUIRE_CUDA": "cuda>=" + "9" * 5000}, host, host.gpus)
    assert "9...9" in str(refused.value)
    assert "9'; write it like cuda>=12.4" in str(refused.value)
    assert len(str(refused.value)) < 1200


@given(st.dictionaries(st.just("NVIDIA_REQUIRE_X"), st.text(alphabet="cudarivebn<>=!,. 019é")))
def test_any_value_at_all_is_an_answer_or_one_line(env: dict[str, str]) -> None:
    assert holds(env) in (True, False)
