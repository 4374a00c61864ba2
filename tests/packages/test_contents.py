"""What the packages hold: what `make install` lays out, for old C libraries too, with manuals."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from integration.product import install
from needed import cannot
from packages import built
from packages.machine import REPOSITORY

TREES = REPOSITORY + "/build/package-trees"
COMPLETIONS = (
    "bash-completion/completions/{}",
    "zsh/site-functions/_{}",
    "fish/vendor_completions.d/{}.fish",
)
# RHEL 9 and its kin have the oldest C library of the distributions that are served: 2.34.
OLDEST_GLIBC = (2, 34)


def output(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        cannot(f"{argv[0]} not installed")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def below(folder: str) -> set[str]:
    """Paths of the files and links below a folder, bytecode aside."""
    return {
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
        if "__pycache__" not in parent
    }


def test_lintian_and_rpmlint_have_nothing_to_say_that_is_not_answered() -> None:
    where = built.folder()
    levels = ["--fail-on", "error,warning", "--allow-root"]
    assert output("lintian", *levels, *built.files("deb", where)) == ""
    settings = REPOSITORY + "/packaging/rpmlint.toml"
    said = output("rpmlint", "-c", settings, *built.files("rpm", where))
    assert "0 errors, 0 warnings" in said, said


def test_what_make_install_lays_out_is_in_one_package_and_no_more(tmp_path: Path) -> None:
    built.folder()
    install(f"{tmp_path}/usr", f"{tmp_path}/etc", f"{tmp_path}/usr/lib/systemd/system")
    packed = [
        re.sub(r"(/man/.*)\.gz$", r"\1", name)
        for part in built.PARTS
        if part != "softgpu"
        for name in below(f"{TREES}/vcuda-{part}")
        if "/doc/" not in name and "/lintian/" not in name
    ]
    assert [name for name, times in Counter(packed).items() if times > 1] == []
    laid_out = below(str(tmp_path))
    # The shim's name tells its content, and that of the package is stripped.
    shims = {name for name in (*packed, *laid_out) if "/libvcuda-" in name}
    assert set(packed) - shims == laid_out - shims


def test_debs_and_rpms_hold_the_same_files() -> None:
    where = built.folder()
    form = "[%{FILEMODES:perms} %{FILENAMES}\\n]"
    lines = output("rpm", "-qp", "--qf", form, *built.files("rpm", where)).splitlines()
    rpms = {line.split()[1] for line in lines if line[0] != "d"}
    lines = [
        line for deb in built.files("deb", where) for line in output("dpkg", "-c", deb).splitlines()
    ]
    debs = {line.split()[5].lstrip(".") for line in lines if line[0] != "d"}
    assert debs - rpms == {
        f"/usr/share/doc/vcuda-{part}/changelog.Debian.gz" for part in built.PARTS
    }
    assert rpms - debs == set()
    assert "/usr/bin/vcuda-container-runtime" in debs


def test_every_program_and_library_runs_where_glibc_is_of_2021() -> None:
    built.folder()
    needed = {}
    for parent, _, names in os.walk(TREES):
        for path in (os.path.join(parent, name) for name in names):
            if os.path.islink(path) or not Path(path).read_bytes().startswith(b"\x7fELF"):
                continue
            found = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-p", path))
            versions = [(int(major), int(minor)) for major, minor in found]
            needed[os.path.basename(path)] = max(versions, default=(0, 0))
    assert {name for name, version in needed.items() if version > OLDEST_GLIBC} == set()
    (shim,) = {version for name, version in needed.items() if name.startswith("libvcuda-")}
    assert shim == (2, 17)  # it runs in images, which may be older than the host
    assert {name for name, version in needed.items() if version == (0, 0)} == {
        "vcuda-container-runtime",
        "vcuda-container-hook",
        "vcuda-procfs-hook",
    }


_WALK = """
def walk(parser):
    for action in parser._actions:
        print(*action.option_strings)
        if action.nargs == "A...":
            for verb, below in action.choices.items():
                print(verb)
                walk(below)
"""


@pytest.mark.parametrize(
    ("page", "parser"),
    [
        ("vcuda.1", "vcuda_hook.cli.build_parser"),
        ("vcuda-node-agent.8", "vcuda_plugin.agent._parser"),
        ("vcuda-scheduler-extender.8", "vcuda_plugin.scheduler.main._parser"),
    ],
)
def test_the_manual_and_completion_tell_of_every_verb_and_option(page: str, parser: str) -> None:
    built.folder()
    module, _, function = parser.rpartition(".")
    program = f"{_WALK}\nfrom {module} import {function}\nwalk({function}())"
    path = ":".join(f"{REPOSITORY}/{source}" for source in ("oci", "runtime_hook", "plugin"))
    asked = subprocess.run(
        [REPOSITORY + "/build/venv/bin/python", "-c", program],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    words = set(asked.stdout.split()) - {"-h", "--help"}
    assert "--config" in words, asked.stderr
    (packed,) = Path(TREES).glob(f"*/usr/share/man/man?/{page}.gz")
    told = gzip.decompress(packed.read_bytes()).decode().replace("\\-", "-")
    assert {word for word in words if word not in told} == set()
    for completion in COMPLETIONS:
        place = completion.format(page.partition(".")[0])
        script = (packed.parents[2] / place).read_text()
        long = {word.removeprefix("--") for word in words if not re.match("-[^-]", word)}
        assert {word for word in long if word not in script} == set()
