"""The start path imports almost no modules and runs on Python 3.9 to 3.13."""

from __future__ import annotations

import ast
import glob
import json
import os
import subprocess
from typing import Any

import pytest

from support.files import ROOT, write
from support.gpu.driver_root import DriverRoot
from support.wrapper import pythons
from support.wrapper.installed_wrapper import Installed
from support.wrapper.pythons import VERSIONS

# Each costs milliseconds of every container's start.
FORBIDDEN = {
    "argparse",
    "collections",
    "contextlib",
    "ctypes",
    "dataclasses",
    "difflib",
    "enum",
    "functools",
    "json",
    "pathlib",
    "re",
    "resource",
    "shutil",
    "signal",
    "subprocess",
    "tempfile",
    "tomllib",
    "typing",
}
# Modules loaded at the time of the exec.
SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
import vcuda_oci.packed
from vcuda_oci.start import main as runtime
def exec_runtime(path, words):
    loaded = sorted(sys.modules)
    import json
    print(json.dumps(loaded))
    raise SystemExit
runtime.exec_runtime = exec_runtime
runtime.main(sys.argv[2:])
"""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    return pythons.python(request.param)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bundle(installed: Installed, driver: DriverRoot, tmp_path: Any) -> str:
    installed.configure(
        runtime=installed.runtime.path, state_dir=f"{tmp_path}/state", driver_root=driver.path
    )
    spec = {"annotations": {"vcuda.io/core": "50", "vcuda.io/memory": "4GiB", "ü": "é\n"}}
    write(f"{tmp_path}/bundle/config.json", json.dumps(spec, ensure_ascii=False))
    return f"{tmp_path}/bundle"


def run(python: str, program: str, *words: str) -> str:
    ran = subprocess.run(
        [python, "-I", "-S", "-B", "-c", program, *words], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_a_share_is_given_without_any_costly_import(
    installed: Installed, bundle: str, python: str
) -> None:
    write(installed.runtime.folder + "/answers", "")
    words = [installed.python_path, installed.settings, installed.runtime.path]
    words += ["create", "--bundle", bundle, "box"]
    cold = set(json.loads(run(python, SHOW, *words)))
    # Not the same container again: to replace its earlier page takes ctypes.
    warm = set(json.loads(run(python, SHOW, *words[:-1], "other")))
    bare = set(run(python, "import sys; print(' '.join(sys.modules))").split())
    assert "vcuda_oci.host.nvml" in cold - warm
    assert (warm - bare) & FORBIDDEN == set()
    assert "vcuda_oci.pages.page_reader" not in cold | warm
    assert {"vcuda_oci.start.main", "vcuda_oci.pages.layout"} <= cold


def test_a_packed_start_loads_no_class_of_the_real_os(
    installed: Installed, bundle: str, python: str
) -> None:
    write(installed.runtime.folder + "/answers", "")
    os.makedirs(installed.python_path + "/vcuda_oci/__pycache__", exist_ok=True)
    subprocess.run([python, "-IS", installed.python_path + "/vcuda_oci/packed.py"], check=True)
    words = [installed.python_path, installed.settings, installed.runtime.path]
    words += ["create", "--bundle", bundle]
    run(python, SHOW, *words, "first")
    warm = json.loads(run(python, SHOW, *words, "second"))
    assert "vcuda_oci.system.light_os" in warm
    assert {"_collections_abc", "resource"} & set(warm) == set()


EDITED: dict[str, Any] = {}


@pytest.mark.parametrize("packed", [False, True], ids=["from sources", "packed"])
def test_every_python_writes_the_same_config_and_becomes_the_runtime(
    installed: Installed, bundle: str, python: str, packed: bool
) -> None:
    start = f"import sys; sys.path.insert(0, {installed.python_path!r}); "
    if packed:
        os.makedirs(installed.python_path + "/vcuda_oci/__pycache__", exist_ok=True)
        subprocess.run([python, "-IS", installed.python_path + "/vcuda_oci/packed.py"], check=True)
        start += "import vcuda_oci.packed; "
    start += "from vcuda_oci.start.main import main; main(sys.argv[1:])"
    installed.runtime.forget()
    words = ["create", "--bundle", bundle, "box"]
    run(python, start, installed.settings, installed.runtime.path, *words)
    [(argv, _, _)] = installed.runtime.calls()
    assert argv == [installed.runtime.path, *words]
    with open(bundle + "/config.json") as file:
        text = file.read().replace(os.path.dirname(bundle), "{folder}")
    assert EDITED.setdefault("config", text) == text
    assert json.loads(text)["annotations"]["ü"] == "é\n"


def test_every_python_compiles_every_source(python: str) -> None:
    program = "import sys\nfor path in sys.argv[1:]: compile(open(path, 'rb').read(), path, 'exec')"
    packages = (ROOT + "/oci/vcuda_oci", ROOT + "/runtime_hook/vcuda_hook")
    sources = [
        each for package in packages for each in glob.glob(package + "/**/*.py", recursive=True)
    ]
    assert len(sources) > 100
    run(python, program, *sources)


def test_type_checking_guards_nothing_but_typing_modules() -> None:
    guarded = set()
    for path in glob.glob(ROOT + "/oci/vcuda_oci/**/*.py", recursive=True):
        with open(path) as file:
            tree = ast.parse(file.read())
        for block in ast.walk(tree):
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
                guarded |= {"." * node.level + (node.module or "") for node in found}
    # Few records have a suspension: only those load its module. The process that calls the driver
    # takes start times from ledger/liveness.py, and reads no allocation.
    late = {".suspension", "..model.suspension", "..model.allocation"}
    assert guarded - late == {"collections.abc", "types", "typing"}


def test_the_hook_imports_nothing_costly_either(tmp_path: Any) -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]; "
        "sys.argv[1:] = ['--config', sys.argv[3], 'poststop', 'box']; "
        "from vcuda_hook.hooks.main import main; main(); print(' '.join(sys.modules))"
    )
    settings = write(f"{tmp_path}/c.toml", f"state-dir = '{tmp_path}/state'")
    ran = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-B", "-c", program, ROOT + "/oci", ROOT + "/runtime_hook",
         settings],
        input='{"id": "box"}',
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert set(ran.stdout.split()) & FORBIDDEN == set()
