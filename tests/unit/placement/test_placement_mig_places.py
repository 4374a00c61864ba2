"""Which MIG profile a request gets, and where."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gpu.mig_sequences import optimum_fits, ours_fits, random_sequence
from support.gpu.mig_tables import layout, profiles
from vcuda_oci.model.mig import Layout
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.placement.mig import Place, choose, holding, room_for

GIB = 1 << 30


@pytest.mark.parametrize(
    ("core", "gib", "name"),
    [
        (1, 0, "1g.10gb"),
        (14, 9, "1g.10gb"),
        (14, 10, "1g.20gb"),
        (15, 0, "2g.20gb"),
        (30, 5, "3g.40gb"),
        (43, 0, "4g.40gb"),
        (10, 30, "3g.40gb"),
        (58, 0, "7g.80gb"),
        (1, 60, "7g.80gb"),
    ],
)
def test_the_smallest_profile_that_holds_both_is_taken(core: int, gib: int, name: str) -> None:
    answer = choose([layout()], core, gib * GIB)
    assert isinstance(answer, Place)
    assert answer.profile.name == name


def test_a_place_leaves_room_for_the_largest_profile() -> None:
    small = choose([layout()], 10, 0)
    assert isinstance(small, Place)
    assert small.start == 6  # 4g.40gb still fits, and 2g.20gb twice beside a 3g.40gb
    half = choose([layout()], 40, 0)
    assert isinstance(half, Place)
    assert half.start == 4
    beside = choose([layout("GPU-0"), layout("GPU-1", "H100", (19, 6))], 10, 0)
    assert isinstance(beside, Place)
    assert (beside.uuid, beside.start) == ("GPU-1", 4)


@pytest.mark.parametrize(
    ("layouts", "core", "reason"),
    [
        ([], 10, "no GPU in MIG mode here"),
        ([layout()], 101, "no MIG profile holds 101 %; the largest is 7g.80gb"),
        (
            [layout("GPU-0", "H100", (9, 0), (14, 4))],
            30,
            "no room for 3g.40gb, which holds 30 %; the largest that fits is 1g.20gb",
        ),
        (
            [layout("GPU-0", "H100", (0, 0))],
            1,
            "no room for 1g.10gb, which holds 1 %; the largest that fits is none",
        ),
    ],
)
def test_a_refusal_names_the_profile_and_what_fits(
    layouts: list[Layout], core: int, reason: str
) -> None:
    answer = choose(layouts, core, 0)
    assert isinstance(answer, Refused)
    assert answer.reason == reason


requests = st.tuples(st.integers(1, 100), st.integers(0, 80))


@given(st.sampled_from(("A100", "H100", "H200")), st.lists(requests, max_size=20))
def test_instances_never_overlap_and_hold_what_was_asked(
    model: str, asked: list[tuple[int, int]]
) -> None:
    gpus = [layout("GPU-0", model), layout("GPU-1", model)]
    for core, gib in asked:
        answer = choose(gpus, core, gib * GIB)
        if isinstance(answer, Refused):
            fits = [holding(gpu, core, gib * GIB) for gpu in gpus]
            assert not any(room_for(gpu, one) for gpu, all in zip(gpus, fits) for one in all)
            continue
        at = next(at for at, gpu in enumerate(gpus) if gpu.uuid == answer.uuid)
        profile = answer.profile
        used = {
            place for _, start, width in gpus[at].taken for place in range(start, start + width)
        }
        mine = set(range(answer.start, answer.start + profile.width))
        assert answer.start in profile.starts
        assert not mine & used
        assert profile.slices * 100 >= core * 7
        assert profile.memory_bytes >= gib * GIB
        taken = (*gpus[at].taken, (profile.id, answer.start, profile.width))
        gpus[at] = gpus[at].replaced(taken=taken)


def test_a_place_is_found_nearly_whenever_an_optimum_finds_one() -> None:
    chance, kinds = random.Random(7), profiles()
    gpus = [layout(f"GPU-{number}") for number in range(4)]
    sequences = [random_sequence(chance, len(kinds), 16) for _ in range(300)]
    missed = [one for one in sequences if not ours_fits(one, gpus)]
    missed = [one for one in missed if optimum_fits(one, kinds, len(gpus))]
    assert len(missed) <= 0.02 * len(sequences)
