"""`packaging/release` publishes files that describe their content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from contract.chart import rendering
from release.docs.commands import of_page
from release.packages import built
from support.needed import skip_or_fail

CHART = f"vcuda-{built.THIS}.tgz"
PUBLISHED = {
    CHART: "",
    f"vcuda-{built.THIS}.cdx.json": "",
    "NOTES.md": "## [0.1.0] - 2026-12-01\n\n### Added\n- Everything.\n",
}


def git(folder: str, *words: str) -> None:
    author = ["-c", "user.name=vcuda", "-c", "user.email=root@localhost"]
    subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A commit of what lies here, with the version in its changelog. No test changes it."""
    built.folder()
    folder = f"{tmp_path_factory.mktemp('checkout')}/vcuda"
    built.checkout(folder, with_build=True)
    with open(folder + "/CHANGELOG.md", "w") as file:
        file.write("# Changelog\n\n## [Unreleased]\n\n")
        file.write(PUBLISHED["NOTES.md"] + "\n## [0.0.9] - 2026-01-01\n- Less.\n")
    git(folder, "init", "-q")
    git(folder, "config", "core.compression", "0")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return folder


@pytest.fixture(scope="module")
def released(checkout: str) -> str:
    """The checkout after a release."""
    done = release(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


@pytest.fixture
def clone(checkout: str, tmp_path: Path) -> str:
    """A clone to change, in which nothing was built."""
    folder = f"{tmp_path}/vcuda"
    git(checkout, "clone", "-q", "--shared", checkout, folder)
    return folder


def rendered(chart: str) -> str:
    done = rendering.helm("template", "vcuda", chart, "--namespace=vcuda")
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_this_host(package: str) -> str:
    words = ["dpkg-query", "-W", "-f", "${Version}", package]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def release(folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder + "/packaging/release"], capture_output=True, text=True)


def test_a_release_is_packages_a_bill_notes_and_checksums(released: str) -> None:
    folder = Path(released + "/build/release")
    packages = {path.name for path in folder.iterdir() if path.suffix in (".deb", ".rpm")}
    assert len(packages) == 2 * (len(built.PARTS) + 1)  # the runtime for two architectures
    assert {path.name for path in folder.iterdir()} == {*packages, *PUBLISHED, "SHA256SUMS"}
    # The checkout has no NVIDIA libraries to test against, and the notes say so.
    notes, untested = (folder / "NOTES.md").read_text().rsplit("\n\n", 1)
    assert notes.strip() == PUBLISHED["NOTES.md"].strip()
    assert untested.startswith("This build was not tested against NVIDIA's own libraries: 535.")

    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (*packages, *PUBLISHED)
    }
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert {name: digest for digest, name in (line.split() for line in lines)} == digests

    text = (folder / f"vcuda-{built.THIS}.cdx.json").read_text()
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None
    bill = json.loads(text)
    hashes = {
        part["bom-ref"]: part["hashes"][0]["content"]
        for part in bill["components"]
        if "hashes" in part
    }
    assert hashes == {name: digests[name] for name in (*packages, CHART)}
    needs = {one["ref"]: set(one.get("dependsOn", [])) for one in bill["dependencies"]}
    urls = {part["bom-ref"]: part["purl"] for part in bill["components"] if "purl" in part}
    linked_with = {"amd64": of_this_host("musl-dev"), "arm64": built.musl_of_arm64()}
    for architecture, musl in linked_with.items():
        runtime = f"vcuda-runtime_{built.THIS}-1_{architecture}.deb"
        assert needs[runtime] == {f"musl {musl}", "needed:python3", "needed:libc6"}
        assert urls[runtime] == f"pkg:deb/vcuda/vcuda-runtime@{built.THIS}?arch={architecture}"
    assert needs[CHART] == {"needed:kube-scheduler"}

    # Helm takes the chart for the one that lies here, and it tells nothing of when it was packed.
    assert rendered(str(folder / CHART)) == rendered(rendering.CHART)
    committed = subprocess.run(
        ["git", "-C", released, "log", "-1", "--format=%ct"], capture_output=True, text=True
    )
    with tarfile.open(folder / CHART) as packed:
        assert {member.mtime for member in packed} == {int(committed.stdout)}


@pytest.fixture
def signer() -> Iterator[dict[str, str]]:
    """The environment of a user who has a key. Its folder's name is short: a socket lies in it."""
    if shutil.which("gpg") is None:
        skip_or_fail("gpg is not installed")
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "GNUPGHOME": home}
        words = ["gpg", "--batch", "--passphrase=", "--quick-gen-key", "vcuda <root@localhost>"]
        subprocess.run(words, env=environment, check=True, capture_output=True)
        yield environment
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)


def test_a_tag_and_the_sums_are_signed_as_the_page_says(
    released: str, clone: str, signer: dict[str, str]
) -> None:
    shutil.copytree(released + "/build/release", clone + "/build/release")
    git(clone, "config", "user.name", "vcuda")
    git(clone, "config", "user.email", "root@localhost")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-c", text]
        return subprocess.run(words, cwd=clone, env=signer, capture_output=True, text=True)

    page = [command.text for command in of_page("CONTRIBUTING.md")]
    signing = [text for text in page if text.split()[0] in ("git", "gpg")]
    assert len(signing) == 3
    for text in signing:
        done = run(text)
        assert done.returncode == 0, done.stderr
    tagged = run("git tag -l --format='%(contents:subject)' v1.2.3").stdout
    assert tagged == "## [0.1.0] - 2026-12-01\n"
    verify = "cd build/release && gpg --verify SHA256SUMS.asc SHA256SUMS"
    assert run(verify).returncode == 0
    with open(clone + "/build/release/SHA256SUMS", "a") as sums:
        sums.write("0  more\n")
    assert run(verify).returncode == 1


@pytest.mark.parametrize(
    ("file", "error"),
    [
        ("new.txt", "the checkout: has changes; commit them"),
        ("CHANGELOG.md", "CHANGELOG.md: has no section on 0.1.0"),
        ("packaging/chart/Chart.yaml", "packaging/chart/Chart.yaml: is not of version 0.1.0"),
    ],
)
def test_an_uncommitted_or_unlisted_file_is_refused(clone: str, file: str, error: str) -> None:
    with open(f"{clone}/{file}", "w") as changed:
        changed.write("# Changelog\n")
    if file != "new.txt":
        git(clone, "commit", "-q", "-a", "-m", "no word")
    done = release(clone)
    assert done.returncode == 1
    assert done.stderr.startswith(f"packaging/release: {error}")
    assert done.stderr.count("\n") == 1
    assert not Path(clone + "/build/release").exists()


def test_a_release_without_the_packages_of_arm64_is_refused(clone: str) -> None:
    done = release(clone)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "packaging/release: build/arm64/musl: is missing; run 'make arm64'\n"
