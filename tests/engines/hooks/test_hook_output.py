"""Hooks write nothing into the file that an annotation names for hook output under crun."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.wrapper.entry_points import FILL, EntryPoint

OUTPUT = ("run.oci.hooks.stdout", "run.oci.hooks.stderr")
WRAPPER = "crun-v2-wrapper"


@pytest.mark.parametrize(
    "entry_point", ["crun-v2-createRuntime", "crun-v2-prestart", WRAPPER], indirect=True
)
def test_the_error_of_a_hook_is_in_no_file_that_an_annotation_names(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    target = scratch + "/profile.sh"
    with open(target, "w") as file:
        file.write("# root's\n")

    def change(config: dict[str, Any], bundle: str) -> None:
        annotations = config["annotations"]
        annotations.update(dict.fromkeys(OUTPUT, target))
        asked = next(key for key in annotations if key.endswith("/core"))
        annotations[asked] = "'; echo from-the-image; '"

    refused = entry_point.run(entry_point.with_share(container, *FILL), change)
    assert refused.rc != 0
    assert "echo from-the-image" in refused.stderr
    with open(target) as file:
        assert file.read() == "# root's\n"


@pytest.mark.parametrize("entry_point", [WRAPPER], indirect=True)
def test_behind_the_wrapper_crun_makes_no_file_for_what_hooks_write(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    def change(config: dict[str, Any], bundle: str) -> None:
        config["annotations"].update({name: f"{scratch}/{name}" for name in OUTPUT})

    started = entry_point.run(entry_point.with_share(container, *FILL), change)
    assert (started.rc, started.stderr) == (0, "")
    assert [name for name in os.listdir(scratch) if name in OUTPUT] == []
