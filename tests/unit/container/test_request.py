"""A container's request: every valid form, and every invalid one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.container.test_jsontree import TREES
from vcuda_oci.container import request
from vcuda_oci.container.container import container_of
from vcuda_oci.model.errors import VcudaError

GIB, MIB = 1 << 30, 1 << 20
ANNOTATION = {
    **{"terms": {"policy": "fixed"}, "placement": "", "from_env": False},
    "is_counted": False,
}
# The amount of each GPU is in the pod's object.
VIRTUAL = {**ANNOTATION, "is_counted": True}
ENV = {**ANNOTATION, "from_env": True}


def annotated(**words: str) -> dict[str, Any]:
    return {"annotations": {f"vcuda.io/{key.replace('_', '-')}": words[key] for key in words}}


def with_env(*entries: Any) -> dict[str, Any]:
    return {"process": {"env": list(entries)}}


def mounted(*requests: tuple[str, str]) -> dict[str, Any]:
    """A pod's container with (resource, source) mounted in the requests' place."""
    mounts = [{"destination": f"/usr/local/vcuda/request/{r}", "source": s} for r, s in requests]
    return {"annotations": {"io.kubernetes.cri.sandbox-uid": "u"}, "mounts": mounts}


def read(spec: Any) -> dict[str, Any] | None:
    raw = request.find(container_of(spec))
    if raw is None:
        return None
    parsed = request.parse(raw)
    assert len(parsed.parts) == (0 if parsed.counted else 1)
    return {
        **{"core": parsed.core, "memory_bytes": parsed.memory_bytes, "gpus": parsed.gpus},
        **{"terms": parsed.terms.as_json(), "placement": parsed.placement},
        **{"from_env": raw.from_env, "is_counted": parsed.counted > 0},
    }


def refusal(spec: Any) -> str:
    raw = request.find(container_of(spec))
    assert raw
    with pytest.raises(VcudaError) as refused:
        request.parse(raw)
    return str(refused.value)


def request_of(core: int, memory: int | None, gpus: tuple[str, ...], rest: Any) -> dict[str, Any]:
    return {"core": core, "memory_bytes": memory, "gpus": gpus, **rest}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (annotated(core="30"), request_of(30, None, (), ANNOTATION)),
        (annotated(core="30", memory="4GiB"), request_of(30, 4 * GIB, (), ANNOTATION)),
        (annotated(core="250"), request_of(250, None, (), ANNOTATION)),
        (annotated(core="1", gpu="1,GPU-a"), request_of(1, None, ("1", "GPU-a"), ANNOTATION)),
        (annotated(core="1", gpu="all"), request_of(1, None, (), ANNOTATION)),
        (
            annotated(core="1", placement="spread", policy="fixed"),
            request_of(1, None, (), {**ANNOTATION, "placement": "spread"}),
        ),
        (
            {
                "annotations": {
                    "vcuda.io/request.vcuda-core": "30",
                    "vcuda.io/request.vcuda-memory": "20",
                }
            },
            request_of(30, 5 * GIB, (), ANNOTATION),
        ),
        ({"annotations": {"vcuda.io/request.gpu": "2"}}, request_of(200, None, (), ANNOTATION)),
        (mounted(("vgpu", "/s/requests/vgpu/2")), request_of(200, None, (), VIRTUAL)),
        (
            mounted(("vcuda-core", "/s/requests/vcuda-core/30"), ("vcuda-memory", "/any/20")),
            request_of(30, 5 * GIB, (), ANNOTATION),
        ),
        (
            {**mounted(("vcuda-core", "/s/30")), **with_env("VCUDA_CORE=90")},
            request_of(30, None, (), ANNOTATION),
        ),
        (with_env("VCUDA_CORE=30", "VCUDA_MEMORY=5GiB"), request_of(30, 5 * GIB, (), ENV)),
        (with_env("VCUDA_CORE=30", "VCUDA_CORE=40"), request_of(40, None, (), ENV)),
        (with_env("NVIDIA_VISIBLE_DEVICES=all"), request_of(0, None, ("all",), ENV)),
        (with_env("NVIDIA_VISIBLE_DEVICES=0,GPU-b"), request_of(0, None, ("0", "GPU-b"), ENV)),
        (
            with_env("NVIDIA_VISIBLE_DEVICES=all", "VCUDA_CORE=30"),
            request_of(30, None, (), ENV),
        ),
        (
            {**annotated(core="10"), **with_env("VCUDA_CORE=90", "VCUDA_MEMORY=1GiB")},
            request_of(10, None, (), ANNOTATION),
        ),
        (
            {**annotated(use_gpu_uuid="GPU-a"), **with_env("VCUDA_CORE=90")},
            request_of(90, None, (), ENV),
        ),
    ],
)
def test_a_request_is_read_where_it_stands(spec: Any, expected: dict[str, Any]) -> None:
    assert read(spec) == expected


@pytest.mark.parametrize("key", ["core", "memory", "gpu", "policy", "c" * 100_000])
def test_a_request_of_megabytes_is_refused_in_a_line_that_can_be_read(key: str) -> None:
    error = refusal(annotated(**{"core": "30", key: "x" * 1_000_000 + ","}))
    where, _, rest = error.partition(": ")
    assert where == "annotations"
    assert "..." in rest and "; " in rest  # the shortened value, followed by the hint
    assert len(error) < 3100


@pytest.mark.parametrize(
    "spec",
    [
        {},
        [],
        None,
        with_env("PATH=/bin", "HOME"),
        {"mounts": mounted(("vcuda-core", "/s/requests/vcuda-core/30"))["mounts"]},
        {**mounted(), "mounts": [None, {"destination": 5}, {"destination": "/usr/local/vcuda/x"}]},
        with_env("NVIDIA_VISIBLE_DEVICES="),
        with_env("NVIDIA_VISIBLE_DEVICES"),
        with_env("NVIDIA_VISIBLE_DEVICES=void"),
        with_env("NVIDIA_VISIBLE_DEVICES=none"),
        with_env("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"),
        with_env("MY_VCUDA_HOME=/opt", "vcuda_core=30", 5, None),
        {"annotations": {"vcuda.io/moved": "x", "vcuda.io/core": 30, "other.io/core": "30"}},
        {"annotations": [], "process": {"env": {}}},
    ],
)
def test_container_without_a_request_is_unchanged(spec: Any) -> None:
    assert request.find(container_of(spec)) is None


FOREIGN_DIGITS = ["\u0663\u0660", "\u00b3"]


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "+1",
        "101x",
        "1e2",
        "",
        " 30",
        "30 ",
        "0x10",
        "1.5",
        "1_0",
        "9" * 7,
        "9" * 10_000,
        *FOREIGN_DIGITS,
    ],
)
def test_a_core_that_is_no_whole_number_is_refused(text: str) -> None:
    assert refusal(annotated(core=text)) == str(
        VcudaError(
            f"core cannot be '{text}'",
            "annotations",
            "write a whole number from 1: 30 is 30 % of a GPU, 100 one whole GPU",
        )
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (str(16 * MIB), 16 * MIB),
        (f"{16 * MIB}B", 16 * MIB),
        ("16385Ki", 16385 * 1024),
        ("16MiB", 16 * MIB),
        ("512MiB", 512 * MIB),
        ("5Gi", 5 * GIB),
        ("1.5GiB", 1536 * MIB),
        ("0.5Gi", 512 * MIB),
        ("1.0000000001GiB", GIB),
        ("1TiB", 1 << 40),
    ],
)
def test_memory_is_read_in_binary_units(text: str, size: int) -> None:
    assert read(annotated(core="1", memory=text)) == request_of(1, size, (), ANNOTATION)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0GiB",
        "5 GiB",
        "GiB",
        "5GB",
        "5gib",
        "-5GiB",
        "1.5",
        "1.5B",
        "1.GiB",
        ".5GiB",
        "1.2.3GiB",
        "1,5GiB",
        "\u0665GiB",
        "9" * 21,
        "5Pi",
    ],
)
def test_memory_of_another_form_is_refused(text: str) -> None:
    assert refusal(annotated(core="1", memory=text)) == (
        f"annotations: memory cannot be '{text}'; write it like 5GiB, 1.5GiB, 512MiB"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4096", "did you mean 4096MiB?"),
        ("16777215", "did you mean 16777215MiB?"),
        ("16", "did you mean 16MiB?"),
        ("15", "ask for at least 16MiB"),
        ("15.9MiB", "ask for at least 16MiB"),
        ("512KiB", "ask for at least 16MiB"),
    ],
)
def test_a_share_below_16_mib_is_taken_for_a_missing_unit(text: str, hint: str) -> None:
    error = refusal(annotated(core="1", memory=text))
    assert error.startswith(f"annotations: memory '{text}' is ")
    assert error.endswith(f" bytes; {hint}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *(
            (
                with_env(f"{variable}=30"),
                f"env: unknown request key {variable}; did you mean {nearest}?",
            )
            for variable, nearest in (
                ("VCUDA_CORES", "VCUDA_CORE"),
                ("VCUDA_COER", "VCUDA_CORE"),
                ("VCUDA_MEM", "VCUDA_MEMORY"),
                ("VCUDA_CORELIMIT", "VCUDA_CORE_LIMIT"),
                ("VCUDA_PLACE", "VCUDA_PLACEMENT"),
            )
        ),
        (
            annotated(cores="30"),
            "annotations: unknown request key vcuda.io/cores; did you mean vcuda.io/core?",
        ),
        (
            with_env("NVIDIA_VISIBLE_DEVICES=all", "VCUDA_CORES=30"),
            "env: unknown request key VCUDA_CORES; did you mean VCUDA_CORE?",
        ),
        (
            with_env("VCUDA_MEMORY=5GiB"),
            "env: memory without core; add how much compute: VCUDA_CORE=30",
        ),
        (
            with_env("VCUDA_CORE=1", "VCUDA_CORES=1"),
            "env: unknown request key VCUDA_CORES; did you mean VCUDA_CORE?",
        ),
        (
            annotated(core="1", memry="1GiB"),
            "annotations: unknown request key vcuda.io/memry; did you mean vcuda.io/memory?",
        ),
        (
            {"annotations": {"vcuda.io/request.vcuda-cores": "1"}},
            "annotations: unknown request key vcuda.io/request.vcuda-cores; "
            "did you mean vcuda.io/request.vcuda-core?",
        ),
        (
            {"annotations": {"vcuda.io/request.vcuda-memory": "1"}},
            "annotations: vcuda-core cannot be ''; "
            "write a whole number from 1: 30 is 30 % of a GPU, 100 one whole GPU",
        ),
        (
            {
                "annotations": {
                    "vcuda.io/request.vcuda-core": "1",
                    "vcuda.io/request.vcuda-memory": "0",
                }
            },
            "annotations: vcuda-memory cannot be '0'; write a whole number of 256 MiB units from 1",
        ),
        (
            {
                "annotations": {
                    "vcuda.io/request.vcuda-core": "1",
                    "vcuda.io/request.gpu": "1",
                }
            },
            "annotations: whole GPUs and shares of GPUs at once; ask for the one or the other",
        ),
        (
            {"annotations": {"vcuda.io/request.gpu": "0"}},
            "annotations: gpu cannot be '0'; "
            "write a whole number from 1: 30 is 30 % of a GPU, 100 one whole GPU",
        ),
        (
            annotated(priority="5"),
            "annotations: priority without core; add how much compute: vcuda.io/core=30",
        ),
        (
            annotated(core="1", placement="best"),
            "annotations: placement 'best' is not offered; use binpack, spread or topology",
        ),
        (
            annotated(core="1", gpu="0,0"),
            "annotations: gpu cannot be '0,0'; list each GPU once, by UUID or index: 0,1",
        ),
        (
            with_env("NVIDIA_VISIBLE_DEVICES=0,,1"),
            "env NVIDIA_VISIBLE_DEVICES: gpu cannot be '0,,1'; "
            "list each GPU once, by UUID or index: 0,1",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_one_line_with_the_way_out(
    spec: Any, message: str
) -> None:
    assert refusal(spec) == message


NAMES = ["annotations", "process", "env", "linux", "resources", "devices", "allow", "vcuda.io/core"]
HOSTILE = st.recursive(
    TREES | st.sampled_from(["VCUDA_CORE=", "NVIDIA_VISIBLE_DEVICES=,", "VCUDA_"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(HOSTILE)
def test_looking_for_a_request_never_fails_whatever_the_spec_holds(spec: Any) -> None:
    raw = request.find(container_of(spec))
    assert container_of(spec).sees_every_device in (True, False)
    if raw:
        try:
            request.parse(raw)
        except VcudaError as error:
            assert "\n" not in str(error)
