"""Host users that can open the pages of a share."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from support.files import ROOT

# Claims a named slice's record and another's on a tmpfs of its own, and prints the folders' modes.
SHOW = """
import os, sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.ledger.ledger import Ledger
ledger = Ledger(sys.argv[2])
with ledger:
    for id, runtime in (("cdi@train", []), ("box", ["runc"])):
        ledger.write(Allocation(id, [], {}, "", runtime, [0, 0], 0, {}), b"limits")
        print(id, oct(os.stat(f"{ledger.containers}/{id}").st_mode & 0o777))
"""


@pytest.mark.parametrize(("options", "of_slices"), [("nosuid", "0o711"), ("noexec", "0o700")])
def test_other_users_reach_a_slices_pages_only_on_a_mount_without_setuid(
    tmp_path: Any, options: str, of_slices: str
) -> None:
    mount = f'mount -t tmpfs -o {options} none "$2" && exec /usr/bin/python3 -c "$0" "$1" "$2"'
    words = ["unshare", "-m", "sh", "-c", mount, SHOW, f"{ROOT}/oci", str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.stdout.splitlines() == [f"cdi@train {of_slices}", "box 0o700"], ran.stderr
