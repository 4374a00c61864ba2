"""A program names a missing package, with the distribution's command to install it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from support.files import ROOT
from vcuda_plugin import dependencies

BOOKWORM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
NOBLE = "NAME=Ubuntu\nID=ubuntu\nID_LIKE=debian\n"
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
ALPINE = "ID=alpine\n"
BY_APT = "run 'apt-get install python3-grpcio python3-prometheus-client'"
BY_DNF = """run 'dnf install "python3dist(grpcio)" "python3dist(prometheus-client)"'"""
BY_NAME = "install its packages of grpcio, prometheus-client"


@pytest.mark.parametrize(
    ("release", "said"),
    [
        pytest.param(BOOKWORM, BY_APT, id="Debian"),
        pytest.param(NOBLE, BY_APT, id="Ubuntu"),
        pytest.param(ROCKY, BY_DNF, id="Rocky"),
        pytest.param(ALPINE, BY_NAME, id="another"),
        pytest.param(None, BY_NAME, id="no os-release"),
    ],
)
def test_the_hint_is_the_distributions_own_command(
    tmp_path: Path, release: str | None, said: str
) -> None:
    path = tmp_path / "os-release"
    if release is not None:
        path.write_text(release)
    assert dependencies.hint(["grpc", "prometheus_client"], str(path)) == said


@pytest.mark.parametrize("program", sorted(dependencies.MODULES))
def test_what_a_program_names_is_what_its_packages_depend_on(program: str, tmp_path: Path) -> None:
    with open(f"{ROOT}/packaging/nfpm/{program}.yaml") as file:
        described = yaml.safe_load(file)["overrides"]
    named = {}
    for form, release in (("deb", BOOKWORM), ("rpm", ROCKY)):
        (tmp_path / form).write_text(release)
        words = dependencies.hint(dependencies.MODULES[program], f"{tmp_path}/{form}").split()[2:]
        named[form] = {word.strip("'\"") for word in words[1:]}
    depends = {form: set(described[form]["depends"]) for form in named}
    programs = {"openssl"} if program == "vcuda-scheduler-extender" else set()
    ours = {"python3", "vcuda-runtime (= ${VCUDA_VERSION}-1)", *programs}
    assert depends["deb"] - ours == named["deb"]
    ours = {"vcuda-runtime = ${VCUDA_VERSION}-1", *programs}
    assert depends["rpm"] - ours == named["rpm"]


# Runs the extender's program where none of these modules can be imported.
BARE = """
import sys
sys.path[:0] = ["oci", "runtime_hook", "plugin"]
sys.modules.update(dict.fromkeys({modules!r}))
from vcuda_plugin.extender.main import main
sys.exit(main({words!r}))
"""


def without_modules(*words: str) -> subprocess.CompletedProcess[str]:
    modules = dependencies.MODULES["vcuda-scheduler-extender"]
    source = BARE.format(modules=modules, words=list(words))
    command = [sys.executable, "-I", "-c", source]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--help",), "usage: vcuda-scheduler-extender "),
        (("--version",), "vcuda-scheduler-extender "),
        (("simulate", "--help"), "usage: vcuda simulate "),
        (("claim-templates", "--help"), "usage: vcuda-scheduler-extender claim-templates "),
        (("certificates", "--help"), "usage: vcuda-scheduler-extender certificates "),
    ],
)
def test_help_needs_no_module_that_only_the_server_imports(words: Sequence[str], line: str) -> None:
    ran = without_modules(*words)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(line)


@pytest.mark.parametrize(
    "words", [("--insecure",), ("simulate", "--generate", "fgd", "--nodes", "1x1:T4:16GiB")]
)
def test_program_that_lacks_a_module_ends_with_one_line(words: Sequence[str]) -> None:
    ran = without_modules(*words)
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"vcuda-scheduler-extender: {sys.executable}: no module ")


def test_a_module_of_ours_that_is_missing_is_no_matter_of_the_distribution() -> None:
    error = ModuleNotFoundError("no module", name="vcuda_oci.ledger.ledger")
    with pytest.raises(ModuleNotFoundError) as raised:
        dependencies.end_without(error, "vcuda-node-agent")
    assert raised.value is error
