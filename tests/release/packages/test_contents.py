"""The packages contain what `make install` installs, with manuals, built for old C libraries."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from release.packages import built
from release.packages.hosts.machine import REPOSITORY
from support.needed import skip_or_fail
from support.product import install

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
        skip_or_fail(f"{argv[0]} not installed")
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


def tree(part: str) -> str:
    """What of it is packed, for amd64 or any machine."""
    (found,) = (path for path in Path(TREES).glob(f"*/vcuda-{part}") if path.parts[-2] != "arm64")
    return str(found)


def held(form: str, paths: list[str]) -> set[str]:
    """The files in packages."""
    if form == "deb":
        listed = [line for path in paths for line in output("dpkg", "-c", path).splitlines()]
        return {line.split()[5].lstrip(".") for line in listed if line[0] != "d"}
    query = "[%{FILEMODES:perms} %{FILENAMES}\\n]"
    lines = output("rpm", "-qp", "--qf", query, *paths).splitlines()
    return {line.split()[1] for line in lines if line[0] != "d"}


def test_lintian_and_rpmlint_have_nothing_to_say_that_is_not_answered() -> None:
    where = built.folder()
    levels = ["--fail-on", "error,warning", "--allow-root"]
    debs, rpms = (
        [*built.files(form, where), *built.files(form, where, "runtime", machine="arm64")]
        for form in ("deb", "rpm")
    )
    assert output("lintian", *levels, *debs) == ""
    settings = REPOSITORY + "/packaging/rpmlint.toml"
    printed = output("rpmlint", "-c", settings, *rpms)
    assert "0 errors, 0 warnings" in printed, printed


def test_what_make_install_lays_out_is_in_one_package_and_no_more(tmp_path: Path) -> None:
    built.folder()
    install(f"{tmp_path}/usr", f"{tmp_path}/etc", f"{tmp_path}/usr/lib/systemd/system")
    packed = [
        re.sub(r"(/man/.*)\.gz$", r"\1", name)
        for part in built.PARTS
        if part != "softgpu"
        for name in below(tree(part))
        if "/doc/" not in name and "/lintian/" not in name
    ]
    assert [name for name, times in Counter(packed).items() if times > 1] == []
    laid_out = below(str(tmp_path))
    # The shim's name tells its content, and that of the package is stripped.
    shims = {name for name in (*packed, *laid_out) if "/libvcuda-" in name}
    assert set(packed) - shims == laid_out - shims


def test_debs_and_rpms_hold_the_same_files() -> None:
    where = built.folder()
    debs, rpms = (held(form, built.files(form, where)) for form in ("deb", "rpm"))
    changelogs = {f"/usr/share/doc/vcuda-{part}/changelog.Debian.gz" for part in built.PARTS}
    # Where each distribution's zsh looks.
    programs = ("vcuda", "vcuda-node-agent", "vcuda-scheduler-extender")
    debians, red_hats = (
        {f"/usr/share/zsh/{folder}/_{program}" for program in programs}
        for folder in ("vendor-completions", "site-functions")
    )
    assert debs - rpms - changelogs == debians
    assert rpms - debs == red_hats
    assert "/usr/bin/vcuda-container-runtime" in debs


@pytest.mark.parametrize("form", ["deb", "rpm"])
def test_the_runtime_is_the_same_files_for_arm64(form: str) -> None:
    """The shim's name tells its content, and each machine's is another."""
    amd64, arm64 = (
        {re.sub(r"libvcuda-\w+", "libvcuda-…", name) for name in held(form, paths)}
        for paths in (
            built.files(form, built.folder(), "runtime", machine=machine)
            for machine in built.ARCHITECTURES
        )
    )
    assert arm64 == amd64
    assert "/usr/lib/vcuda/libvcuda-….so" in arm64


def native(machine: str) -> list[str]:
    """The programs and libraries of packages that are compiled for a machine."""
    return [
        path
        for folder in (machine, "all")
        for parent, _, names in os.walk(f"{TREES}/{folder}")
        for path in (os.path.join(parent, name) for name in names)
        if not os.path.islink(path) and Path(path).read_bytes().startswith(b"\x7fELF")
    ]


def compiled(machine: str) -> dict[str, str]:
    """What the linker has noted in each program and library of packages, by its name."""
    objdump = f"{built.ARCHITECTURES[machine]}-linux-gnu-objdump"
    return {os.path.basename(path): output(objdump, "-p", "-f", path) for path in native(machine)}


@pytest.mark.parametrize("machine", built.ARCHITECTURES)
def test_every_program_and_library_runs_where_glibc_is_of_2021(machine: str) -> None:
    built.folder()
    needed = {}
    for name, noted in compiled(machine).items():
        assert {"amd64": "i386:x86-64", "arm64": "aarch64"}[machine] in noted
        found = re.findall(r"GLIBC_(\d+)\.(\d+)", noted)
        versions = [(int(major), int(minor)) for major, minor in found]
        needed[name] = max(versions, default=(0, 0))
    assert {name for name, version in needed.items() if version > OLDEST_GLIBC} == set()
    (shim,) = {version for name, version in needed.items() if name.startswith("libvcuda-")}
    assert shim == (2, 17)  # it runs in images, which may be older than the host
    assert {name for name, version in needed.items() if version == (0, 0)} == {
        "vcuda-container-runtime",
        "vcuda-container-hook",
        "vcuda-procfs-hook",
        "vcuda-turn-keeper",
    }


# The shim binds at the first call: load.c takes the public names while others still resolve.
LAZY = "libvcuda-"


@pytest.mark.parametrize("machine", built.ARCHITECTURES)
def test_every_program_is_position_independent_and_read_only_where_it_was_relocated(
    machine: str,
) -> None:
    built.folder()
    lacking, static = set(), set()
    for path in native(machine):
        name = os.path.basename(path)
        readelf = f"{built.ARCHITECTURES[machine]}-linux-gnu-readelf"
        noted = output(readelf, "-h", "-l", "-d", "-W", path)
        if ".so" not in name:
            lacking |= set() if re.search(r"FLAGS_1.*\bPIE\b", noted) else {(name, "PIE")}
            static |= {name} if "(NEEDED)" not in noted and "INTERP" not in noted else set()
        if "BIND_NOW" not in noted and not name.startswith(LAZY):
            lacking.add((name, "BIND_NOW"))
        if "GNU_RELRO" not in noted:
            lacking.add((name, "RELRO"))
        if not re.search(r"GNU_STACK .* RW +0x", noted):
            lacking.add((name, "a stack that is not executable"))
    assert lacking == set()
    assert static == {
        "vcuda-container-runtime",
        "vcuda-container-hook",
        "vcuda-procfs-hook",
        "vcuda-turn-keeper",
    }


SOFTWARE_GPU = (
    "softgpu",
    "nvidia-smi",
    "nvidia-cuda-mps-control",  # nvidia-cuda-mps-server is a link to it
    "vcuda-workload",
)


def test_the_software_gpus_programs_check_their_stack_and_their_buffers() -> None:
    built.folder()
    checks = {"__stack_chk_fail", "__fprintf_chk"}
    missing = {
        os.path.basename(path): {check for check in checks if f" {check}@" not in symbols}
        for path in native("amd64")
        if "/softgpu/" in path and ".so" not in path
        for symbols in [output("readelf", "--dyn-syms", "-W", path)]
    }
    assert missing == {program: set() for program in SOFTWARE_GPU}


_WALK = """
def walk(parser):
    for action in parser._actions:
        print(*action.option_strings)
        if action.nargs == "A...":
            for verb, below in action.choices.items():
                print(verb)
                walk(below)
"""


def test_zsh_completions_are_in_each_distributions_folder() -> None:
    for part, program in (("runtime", "vcuda"), ("node-agent", "vcuda-node-agent")):
        (deb,), (rpm,) = (built.files(form, built.folder(), part) for form in ("deb", "rpm"))
        listed = output("dpkg-deb", "--contents", deb)
        assert f"/usr/share/zsh/vendor-completions/_{program}\n" in listed
        assert "site-functions" not in listed
        listed = output("rpm", "--query", "--list", "--package", rpm)
        assert f"/usr/share/zsh/site-functions/_{program}\n" in listed
        assert "vendor-completions" not in listed


@pytest.mark.parametrize(
    ("page", "parser"),
    [
        ("vcuda.1", "vcuda_hook.cli.main.build_parser"),
        ("vcuda-node-agent.8", "vcuda_plugin.agent.command_line.parser"),
        ("vcuda-scheduler-extender.8", "vcuda_plugin.extender.main._parser"),
    ],
)
def test_the_manual_and_completion_have_every_verb_and_option(page: str, parser: str) -> None:
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
    packed, *_ = Path(TREES).glob(f"*/*/usr/share/man/man?/{page}.gz")
    manual = gzip.decompress(packed.read_bytes()).decode().replace("\\-", "-")
    assert {word for word in words if word not in manual} == set()
    for completion in COMPLETIONS:
        place = completion.format(page.partition(".")[0])
        script = (packed.parents[2] / place).read_text()
        long = {word.removeprefix("--") for word in words if not re.match("-[^-]", word)}
        assert {word for word in long if word not in script} == set()
