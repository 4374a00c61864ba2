"""`vcuda doctor` on cgroups that cannot deny devices."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.files import ROOT
from vcuda_hook.doctor.finding import ERROR, OK, UNKNOWN, Finding

# Findings about cgroups, in namespaces where a script may mount first.
LOOK = f"""
import json, sys
sys.path[:0] = ["{ROOT}/oci", "{ROOT}/runtime_hook"]
from vcuda_hook.doctor import cgroups as doctor_cgroups
print(json.dumps([found.__dict__ for found in doctor_cgroups.examine(None)]))
"""
NO_CGROUPS = "umount -l -R /sys/fs/cgroup; "
VERSION_2 = NO_CGROUPS + "mount -t cgroup2 none /sys/fs/cgroup; "
# CAP_DAC_READ_SEARCH reaches the checkout anywhere and grants no more.
NOT_ROOT = "--reuid 65534 --inh-caps +dac_read_search --ambient-caps +dac_read_search"
NO_BPF = "setpriv --bounding-set -sys_admin,-bpf --inh-caps -sys_admin,-bpf "
BOOT = "boot a kernel with CONFIG_CGROUP_BPF, not locked down, or with cgroup v1"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            NO_CGROUPS + "exec ",
            Finding(
                "device-rules",
                ERROR,
                "no cgroup judges devices: none can be denied to a container",
                "/sys/fs/cgroup",
                "mount cgroup v1's devices controller, or boot with cgroup v2",
            ),
        ),
        (
            VERSION_2 + "exec ",
            Finding("device-rules", OK, "cgroup v2, and the kernel loads device programs"),
        ),
        (
            VERSION_2 + "exec " + NO_BPF,
            Finding(
                "device-rules",
                ERROR,
                "cgroup v2, and the kernel loads no device program: Operation not permitted",
                "bpf(2)",
                BOOT,
            ),
        ),
        (
            VERSION_2 + f"exec setpriv {NOT_ROOT} ",
            Finding(
                "device-rules",
                UNKNOWN,
                "not checked: Operation not permitted",
                hint="run it as root",
            ),
        ),
    ],
    ids=["no cgroups", "version 2", "version 2 without BPF", "not root"],
)
def test_a_kernel_that_cannot_deny_devices_is_found(line: str, found: Finding) -> None:
    command = [sys.executable, "-I", "-S", "-c", LOOK]
    answer = subprocess.run(
        ["unshare", "-m", "sh", "-c", line + '"$@"', "sh", *command],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert [Finding(**fields) for fields in json.loads(answer.stdout)] == [found]
