"""The packed start path equals its sources on every Python, or is ignored."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from support.files import ROOT, write
from support.wrapper import pythons
from support.wrapper.pythons import VERSIONS

# By module of ours that a start loads: whether it came from the pack, and its file.
SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
import vcuda_oci.packed
from vcuda_oci.start import main as runtime
import json
print(json.dumps({
    name: [type(module.__loader__).__name__ == "Packed", module.__file__]
    for name, module in sys.modules.items() if name.startswith("vcuda_oci.")
}))
"""


class Sources:
    """A copy of the start path's sources, for one Python."""

    def __init__(self, folder: str, python: str) -> None:
        self.folder, self.python = folder, python
        shutil.copytree(
            ROOT + "/oci/vcuda_oci",
            folder + "/vcuda_oci",
            ignore=shutil.ignore_patterns("__pycache__"),
        )

    def run(self, *words: str) -> str:
        ran = subprocess.run(
            [self.python, "-I", "-S", "-B", *words], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    def pack(self) -> str:
        """The file's path."""
        os.makedirs(self.folder + "/vcuda_oci/__pycache__", exist_ok=True)
        assert self.run(self.folder + "/vcuda_oci/packed.py") == ""
        (path,) = glob.glob(self.folder + "/vcuda_oci/__pycache__/*.packed")
        return path

    def loaded(self) -> dict[str, str]:
        """By module that a start loads, "packed" or "own", where its file is the right one."""
        modules: dict[str, Any] = json.loads(self.run("-c", SHOW, self.folder))
        for name, (_, path) in modules.items():
            place = f"{self.folder}/{name.replace('.', '/')}"
            assert path in (place + ".py", place + "/__init__.py")
        return {name: "packed" if packed else "own" for name, (packed, _) in modules.items()}


@pytest.fixture(params=VERSIONS)
def sources(request: pytest.FixtureRequest, tmp_path: Any) -> Sources:
    return Sources(str(tmp_path), pythons.python(request.param))


def test_a_start_loads_all_but_the_loader_from_one_file(sources: Sources) -> None:
    assert "packed" not in sources.loaded().values()
    sources.pack()
    loaded = sources.loaded()
    assert loaded.pop("vcuda_oci.packed") == "own"
    assert set(loaded.values()) == {"packed"}
    assert len(loaded) > 25


STRIPPED = """
import sys
sys.path.insert(0, sys.argv[1])
import vcuda_oci.packed
import gc
assert not gc.isenabled()
from vcuda_oci.edits import config_json, edits
from vcuda_oci.model import errors
from vcuda_oci.system import settings_file as config
for one in (edits, edits.Edits, config_json.apply, edits.Edits.__init__, errors.VcudaError):
    assert one.__doc__ is None, one
assert config._DEFAULTS["runtime"] == "runc" and config._latest == {}
try:
    config.parse("x", "/c")
except errors.VcudaError as error:
    while error.__traceback__.tb_next:
        error.__traceback__ = error.__traceback__.tb_next
    print(error.__traceback__.tb_lineno, error.__traceback__.tb_frame.f_code.co_filename)
"""


def test_packed_code_has_no_docstrings_and_the_same_line_numbers(sources: Sources) -> None:
    sources.pack()
    path = sources.folder + "/vcuda_oci/system/settings_file.py"
    with open(path) as file:
        (line,) = [number for number, text in enumerate(file, 1) if "is not a setting" in text]
    assert sources.run("-c", STRIPPED, sources.folder) == f"{line} {path}\n"


def test_a_source_that_was_changed_since_is_the_one_that_counts(sources: Sources) -> None:
    sources.pack()
    changed = sources.folder + "/vcuda_oci/model/names.py"
    with open(changed, "a") as file:
        file.write("NEWER = True\n")
    show = SHOW + "from vcuda_oci.model import names; assert names.NEWER"
    sources.run("-c", show, sources.folder)
    loaded = sources.loaded()
    assert (loaded["vcuda_oci.model.names"], loaded["vcuda_oci.edits.edits"]) == ("own", "packed")


def test_an_installation_that_was_moved_runs_from_where_it_is(sources: Sources) -> None:
    sources.pack()
    moved = sources.folder + "/moved"
    os.mkdir(moved)
    os.rename(sources.folder + "/vcuda_oci", moved + "/vcuda_oci")
    sources.folder = moved
    assert sources.loaded()["vcuda_oci.start.apply_share"] == "packed"


@pytest.mark.parametrize("kept", [0, 10, 1000, -1])
def test_a_file_that_was_cut_short_costs_time_and_no_start(tmp_path: Any, kept: int) -> None:
    sources = Sources(str(tmp_path), "/usr/bin/python3")
    path = sources.pack()
    with open(path, "rb") as file:
        content = file.read()
    write(path, content[:kept])
    assert set(sources.loaded().values()) == {"own"}


def test_what_another_build_of_python_packed_is_not_believed(tmp_path: Any) -> None:
    sources = Sources(str(tmp_path), "/usr/bin/python3")
    path = sources.pack()
    with open(path, "rb") as file:
        content = file.read()
    write(path, b"3.11.1 (other build)" + content[content.index(b"\0") :])
    assert set(sources.loaded().values()) == {"own"}
