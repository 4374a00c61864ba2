"""``worker.py TARGET FOLDER [libFuzzer's options and corpora]``: one fuzzer in one process."""

from __future__ import annotations

import os
import sys

import atheris

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(name: str, folder: str, options: list[str]) -> None:
    # Laid out as installed: where a module lies says where the shim and the hook are.
    packages = folder + "/lib/vcuda/python"
    os.makedirs(packages)
    for package in ("oci/vcuda_oci", "runtime_hook/vcuda_hook"):
        source = f"{os.path.dirname(TESTS)}/{package}"
        os.symlink(source, f"{packages}/{os.path.basename(package)}")
    with open(folder + "/lib/vcuda/libvcuda.so.1", "w"):
        sys.path[:0] = [packages, TESTS]
    with atheris.instrument_imports(include=["vcuda_oci", "vcuda_hook"]):
        from release.fuzz import targets
    from release.fuzz import json_mutation

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        changed = json_mutation.mutate(content, seed) if seed % 2 else None
        return (atheris.Mutate(content, most) if changed is None else changed)[:most]

    target = targets.TARGETS[name](folder)
    atheris.Setup([name, *options], target, custom_mutator=mutate)
    atheris.Fuzz()


main(sys.argv[1], sys.argv[2], sys.argv[3:])
