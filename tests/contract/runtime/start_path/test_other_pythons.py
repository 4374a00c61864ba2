"""The start path's tests on the oldest and the newest supported Python.

`tests/engines/images/test_pythons.py` starts a container on each version between them too.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys

import pytest

from support.files import ROOT
from support.wrapper import pythons

THIS = "{}.{}".format(*sys.version_info[:2])
OTHERS = [version for version in (pythons.VERSIONS[0], pythons.VERSIONS[-1]) if version != THIS]
# Their answer depends on no Python: the first reads the sources, the second compares thousands of
# placements with the best ones, the third races two claims for a lock a thousand times, the fourth
# starts each supported Python itself, the fifth asks the command, which no start loads. The others
# ask the launcher and the hook, which start /usr/bin/python3 on any Python of the tests.
NOT_AGAIN = (
    "tests/unit/project/test_guest_access.py",
    "tests/unit/placement/test_placement_mig_places.py",
    "tests/contract/host/ledger/test_claim_races.py",
    "tests/contract/runtime/start_path/test_start_path.py",
    "tests/contract/host/cli/test_names_in_answers.py",
    "tests/contract/runtime/claim_socket/test_claim_socket.py",
    "tests/contract/runtime/claim_socket/test_claim_socket_poststop.py",
)
# Tests of those files for which a claim server runs on the other Python: each kind of answer, and
# each step of its start. test_claim_socket_cdi.py has the third kind.
AGAIN = (
    "tests/contract/runtime/claim_socket/test_claim_socket.py::"
    "test_the_next_server_opens_the_socket_of_one_killed_while_opening_it",
    "tests/contract/runtime/claim_socket/test_claim_socket_poststop.py::"
    "test_the_claim_server_releases_the_share_and_twice_is_once",
)
# Of kills at each step with two drivers, those with the one that has fewer steps stay: what repairs
# them is the same code, and the other driver's whole way is in the file's other tests.
NOT_OF_A_FILE = (
    "tests/contract/runtime/test_mps_partitions.py::"
    "test_kill_at_any_step_leaves_what_the_next_keeper_sets_right[620.10]",
)
LOADED = """
import sys
sys.path.insert(0, "oci")
from vcuda_oci.start import main, poststop
print(*sys.modules)
"""


def files() -> list[str]:
    """The unit tests that are named after a module which a start loads."""
    words = [sys.executable, "-I", "-S", "-c", LOADED]
    loaded = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modules = [name.rpartition(".")[2] for name in loaded.split() if name.startswith("vcuda_oci.")]
    folders = ("unit/*", "contract/runtime", "contract/runtime/*", "contract/host/*")
    forms = [
        f"tests/{folder}/test_{module}{end}.py"
        for folder in folders
        for module in modules
        for end in ("", "_*")
    ]
    found = {path for form in forms for path in glob.glob(f"{ROOT}/{form}")}
    named = {os.path.relpath(path, ROOT) for path in found if not _is_of_the_plugin(path)}
    assert named.issuperset(NOT_AGAIN)
    return sorted(named.difference(NOT_AGAIN))


def _is_of_the_plugin(path: str) -> bool:
    """A module of the plugin's can have a name that begins as one of the start path's."""
    with open(path, encoding="utf-8") as file:
        return "vcuda_plugin" in file.read()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", OTHERS)
def test_the_start_paths_tests_hold_on_this_python(version: str) -> None:
    chosen = files()
    assert len(chosen) > 25
    # Few examples of a property: the whole run seeks counterexamples, this one a changed language.
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=few"]
    words += [f"--deselect={one}" for one in NOT_OF_A_FILE]
    # It is no part of the run that started it.
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [pythons.python(version), *words, *chosen, *AGAIN],
        cwd=ROOT,
        env={**others, "PYTHONPATH": f"{ROOT}/build/pythons"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]
    assert " passed" in ran.stdout.splitlines()[-1]
    assert f"{len(NOT_OF_A_FILE)} deselected" in ran.stdout.splitlines()[-1]
    assert "skipped" not in ran.stdout.splitlines()[-1]
