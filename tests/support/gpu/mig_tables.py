"""MIG profiles of real models, as tests give them to the pure functions."""

from __future__ import annotations

from vcuda_oci.model.mig import Layout, Profile

_SHAPES = (
    (19, 1, range(7), 1, 7),
    (15, 1, (0, 2, 4, 6), 2, 4),
    (14, 2, (0, 2, 4), 2, 3),
    (9, 3, (0, 4), 4, 2),
    (5, 4, (0,), 4, 1),
    (0, 7, (0,), 8, 1),
)
# GiB in the name, and MiB of the instance.
_MEMORY = {
    "A100": ((10, 20, 20, 40, 40, 80), (9856, 19968, 19968, 40192, 40192, 80384)),
    "H100": ((10, 20, 20, 40, 40, 80), (9984, 20096, 20096, 40448, 40448, 81152)),
    "H200": ((18, 35, 35, 71, 71, 141), (16384, 33280, 33280, 71424, 71424, 143360)),
}


def profiles(model: str = "H100") -> list[Profile]:
    names, sizes = _MEMORY[model]
    return [
        Profile(id, f"{slices}g.{gib}gb", slices, mib << 20, starts, width, most)
        for (id, slices, starts, width, most), gib, mib in zip(_SHAPES, names, sizes)
    ]


def layout(uuid: str = "GPU-0", model: str = "H100", *taken: tuple[int, int]) -> Layout:
    """taken: (profile id, start)."""
    known = profiles(model)
    width = {profile.id: profile.width for profile in known}
    return Layout(
        uuid,
        (_MEMORY[model][1][-1] + 1024) << 20,
        known,
        [(id, start, width[id]) for id, start in taken],
    )
