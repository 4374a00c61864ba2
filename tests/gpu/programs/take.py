"""take.py torch|cupy|jax|numba [PIECES]: what a framework sees of its slice, and what it gets.

Prints {"total": bytes, "got": bytes, "refused": the error's class}, or {"missing": name}. It takes
64 MiB at a time until it is refused, or has so many PIECES, does work with each, gives all back and
does work again. The interpreter that runs this need have nothing of this project.
"""

import json
import sys
from typing import Any

CHUNK = 64 << 20
WORDS = CHUNK // 4
PIECES = int(sys.argv[2]) if sys.argv[2:] else sys.maxsize


def torch_taken():
    import torch

    total = torch.cuda.mem_get_info()[1]
    kept: list[Any] = []
    refused = "nothing"
    try:
        while len(kept) < PIECES:
            kept.append(torch.ones(WORDS, dtype=torch.float32, device="cuda") * 2)
    except torch.cuda.OutOfMemoryError as error:
        refused = type(error).__name__
    got = torch.cuda.memory_reserved()
    assert all(float(one[-1]) == 2 for one in kept)
    kept.clear()
    torch.cuda.empty_cache()
    left = torch.randn(2048, 2048, device="cuda")
    assert torch.isfinite(left @ left).all()
    return total, got, refused


def cupy_taken():
    import cupy

    total = cupy.cuda.runtime.memGetInfo()[1]
    kept: list[Any] = []
    refused = "nothing"
    try:
        while len(kept) < PIECES:
            kept.append(cupy.ones(WORDS, dtype=cupy.float32))
    except cupy.cuda.memory.OutOfMemoryError as error:
        refused = type(error).__name__
    pool = cupy.get_default_memory_pool()
    got = pool.total_bytes()
    assert all(float(one[-1]) == 1 for one in kept)
    kept.clear()
    pool.free_all_blocks()
    assert float(cupy.ones(1000).sum()) == 1000
    return total, got, refused


def jax_taken():
    import jax
    import jax.numpy as jnp

    device = jax.devices("gpu")[0]
    # A part of what it sees, taken at the first use.
    total = device.memory_stats()["bytes_limit"] * 4 // 3
    kept: list[Any] = []
    refused = "nothing"
    try:
        while len(kept) < PIECES:
            kept.append(jax.block_until_ready(jnp.ones(WORDS, jnp.float32)))
    except Exception as error:
        refused = f"{type(error).__name__}: {str(error)[:40]}"
    got = device.memory_stats()["bytes_in_use"]
    kept.clear()
    assert float(jnp.ones(1000).sum()) == 1000
    return total, got, refused


def numba_taken():
    import numpy
    from numba import cuda as numba_cuda

    cuda: Any = numba_cuda  # its kernels' functions have no types

    total = cuda.current_context().get_memory_info().total
    kept: list[Any] = []
    refused = "nothing"
    try:
        while len(kept) < PIECES:
            kept.append(cuda.device_array(WORDS, numpy.float32))
    except Exception as error:
        refused = f"{type(error).__name__}: {str(error)[:60]}"
    got = len(kept) * CHUNK

    @cuda.jit
    def fill(out):
        at = cuda.grid(1)
        if at < out.size:
            out[at] = 3

    fill[WORDS // 256, 256](kept[0])
    assert kept[0].copy_to_host()[-1] == 3
    return total, got, refused


TAKEN = {"torch": torch_taken, "cupy": cupy_taken, "jax": jax_taken, "numba": numba_taken}


def main():
    try:
        total, got, refused = TAKEN[sys.argv[1]]()
    except ImportError as error:
        print(json.dumps({"missing": error.name or sys.argv[1]}))
        return
    print(json.dumps({"total": int(total), "got": int(got), "refused": refused}))


if __name__ == "__main__":
    main()
