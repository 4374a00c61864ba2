"""Only the empty files that were made for mounts are removed from an ended container's root."""

from __future__ import annotations

import os
import subprocess

import pytest

from support.files import ROOT
from support.needed import skip_or_fail

HOOK = f"{ROOT}/build/bin/vcuda-container-hook"
# An overlay as an engine mounts it. $1: what the image has; $2: what the container made since the
# note was written; $3: the root that the note names.
SCRIPT = """
set -e
mkdir host image upper work root
printf kept >host/full
: >host/empty
cd image; eval "$1"; cd ..
mount -t overlay -o lowerdir=image,upperdir=upper,workdir=work overlay root
sleep 0.05 # more than a tick of the clock that dates files
printf '%s\\0' "$PWD/$3" /usr/lib/libcuda.so.1 /usr/bin/nvidia-smi /usr/local/vcuda/limits \\
  /usr/local/vcuda/driver/cuda /usr/local/vcuda-more/file /data/volume-file >note
sleep 0.05
cd root; eval "$2"; cd ..
"$HOOK" removeMountPoints <note
cd root; find . ! -type d | sort; test ! -e usr/local/vcuda || echo "has our folder"
test ! -e usr/local/vcuda-more || echo "has a folder of a similar name"
cd ../host; find . -type f | sort
"""
HOST = ["./empty", "./full"]
MOUNT_POINTS = """
mkdir -p usr/lib usr/bin usr/local/vcuda/driver
for place in lib/libcuda.so.1 bin/nvidia-smi local/vcuda/limits local/vcuda/driver/cuda; do
  : >usr/$place
done
"""


@pytest.fixture(autouse=True)
def root_user() -> None:
    if os.geteuid() != 0:
        skip_or_fail("mounting an overlay takes root")


def left(folder: str, image: str, made: str, root: str = "root") -> list[str]:
    words = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", image, made, root]
    environment = {**os.environ, "HOOK": HOOK}
    run = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("image", "made", "stays"),
    [
        ("", MOUNT_POINTS, []),
        ("mkdir usr; ln -s usr/lib lib", MOUNT_POINTS, ["./lib"]),
        (
            "mkdir -p usr/lib; : >usr/lib/libcuda.so.1",
            "mkdir usr/bin; : >usr/bin/nvidia-smi",
            ["./usr/lib/libcuda.so.1"],
        ),
        ("", "mkdir -p usr/bin; echo >usr/bin/nvidia-smi", ["./usr/bin/nvidia-smi"]),
        ("", "mkdir -p usr/bin/nvidia-smi/below", []),
        ("", "mkdir -p usr/bin; mkfifo usr/bin/nvidia-smi", ["./usr/bin/nvidia-smi"]),
        (
            "",
            "mkdir -p usr/bin; : >mine; ln -s ../../mine usr/bin/nvidia-smi",
            ["./mine", "./usr/bin/nvidia-smi"],
        ),
        (
            "",
            "mkdir -p usr/local/vcuda; : >usr/local/vcuda/limits; echo >usr/local/vcuda/mine",
            ["./usr/local/vcuda/mine", "has our folder"],
        ),
        (
            "",
            "mkdir -p usr/local/vcuda-more; : >usr/local/vcuda-more/file",
            ["has a folder of a similar name"],
        ),
    ],
    ids=[
        "each is removed",
        "in an image with links",
        "an empty file of the image",
        "a file with content",
        "a folder",
        "a pipe",
        "a link to an empty file",
        "a file beside them",
        "a folder of a similar name",
    ],
)
def test_only_files_made_as_mount_points_are_removed(
    tmp_path: str, image: str, made: str, stays: list[str]
) -> None:
    assert left(str(tmp_path), image, made) == [*stays, *HOST]


@pytest.mark.parametrize(
    "made",
    [
        "ln -s ../host data; : >../host/volume-file",
        "ln -s {folder}/host data; : >../host/volume-file",
        "mkdir data; mount --bind ../host data; : >../host/volume-file",
        "ln -s /proc/self/cwd/host data; : >../host/volume-file",
    ],
    ids=["relative link", "absolute link", "volume", "link of the kernel's"],
)
def test_nothing_outside_of_the_roots_own_file_system_is_removed(tmp_path: str, made: str) -> None:
    found = left(str(tmp_path), "", made.replace("{folder}", str(tmp_path)))
    assert found[-3:] == [*HOST, "./volume-file"]


@pytest.mark.parametrize(
    "root",
    ["upper", "root/inner", "missing"],
    ids=["a plain folder", "a folder of an overlay", "a root that is not there"],
)
def test_only_the_root_of_an_overlay_is_touched(tmp_path: str, root: str) -> None:
    made = "mkdir inner; cd inner;" + MOUNT_POINTS + "cd ..;" + MOUNT_POINTS
    found = left(str(tmp_path), "", made, root)
    assert len([line for line in found if "vcuda/" in line or "nvidia-smi" in line]) == 6
