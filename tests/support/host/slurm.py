"""A real Slurm on a private host, with the files that docs/tutorial-slurm.md shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping

from support.host import cgroups
from support.host.private_host import PATH, PrivateHost, Result
from support.product import Product
from support.waiting import until

USERS = {"alice": 1500, "bob": 1501}
GPU_BYTES = 16 << 30
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged", "sudo", "runc", "ip")
# What the page leaves to the cluster; the timers are short. One node is named as this host.
CLUSTER = """
ClusterName=test
SlurmctldHost=localhost
SlurmUser=root
JobAcctGatherType=jobacct_gather/none
DefMemPerNode=300
KillWait=1
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES
"""


class Slurm:
    """A cluster of one node. The end of the host ends its daemons.

    product: of this host alone. texts: the page's files, by their paths.
    """

    def __init__(self, host: PrivateHost, product: Product, texts: Mapping[str, str]) -> None:
        self.host, self.node, self.texts = host, os.uname().nodename, texts
        self._give_the_host_cgroups_of_its_own()
        self._write_files(product)
        for user, uid in USERS.items():
            self.host.check(["useradd", "--uid", str(uid), "--create-home", user])
        self._start()

    def home(self, user: str) -> str:
        return self.host.path("home", user)

    def _give_the_host_cgroups_of_its_own(self) -> None:
        """Slurm's cgroups have the same names in each run of the tests."""
        for point in cgroups.hierarchies():
            own = point + self.host.cgroup_parent
            os.mkdir(own)
            for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of v1
                if point.endswith("/cpuset"):
                    shutil.copyfile(f"{point}/{name}", f"{own}/{name}")
            self.host.check(["mount", "--bind", own, point])

    def _write_files(self, product: Product) -> None:
        # Nothing of the host below these two is covered.
        for folder in ("/usr/local/sbin", "/home"):
            over = self.host.path(os.path.basename(folder))
            os.makedirs(over, exist_ok=True)
            self.host.check(["mount", "--bind", over, folder])
        os.symlink(product.prefix + "/bin/vcuda", self.host.path("sbin/vcuda"))
        texts = self.texts
        nodes = texts["/etc/slurm/slurm.conf"].replace(
            "NodeName=node1", f"NodeName={self.node} NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000"
        )
        devices = texts["/etc/slurm/gres.conf"].replace("/dev/nvidia0", "/dev/null")
        for path, text, mode in (
            ("/etc/slurm/slurm.conf", CLUSTER + nodes, 0o644),
            ("/etc/slurm/gres.conf", devices, 0o644),
            ("/usr/local/sbin/gpu-run", texts["/usr/local/sbin/gpu-run"], 0o755),
            ("/etc/sudoers.d/gpu-run", texts["/etc/sudoers.d/gpu-run"], 0o440),
            (
                "/etc/slurm/cgroup.conf",
                "CgroupPlugin=cgroup/v1\n" + texts["/etc/slurm/cgroup.conf"],
                0o644,
            ),
            ("/etc/hosts", f"127.0.0.1 localhost {self.node}\n", 0o644),
            (product.config, f'driver-root = "{product.driver_root}"\n', 0o644),
        ):
            self._append(path, text, fresh=True)
            os.chmod(self._inside(path), mode)

    def _start(self) -> None:
        # Slurm resolves no name where the only address is the loopback's.
        self.host.check(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"])
        folders = ["/run/munge", "/var/log/munge", "/var/lib/munge"]
        self.host.check(["install", "-d", "-o", "munge", *folders])
        self.host.check(["install", "-d", "/var/spool/slurmd", "/var/spool/slurmctld"])
        as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
        self.host.daemon([*as_munge, "munged", "--foreground"], "munge.log")
        socket = self._inside("/run/munge/munge.socket.2")
        until(lambda: os.path.exists(socket), "munged")
        for name in ("slurmctld", "slurmd"):
            self.host.daemon([name, "-D"], name + ".log")
        state = ["sinfo", "--noheader", "--format=%t"]
        try:
            until(lambda: self.host.run(state).stdout.strip() == "idle", "the node", 10)
        except TimeoutError:
            logs = [self.host.read(f"{name}.log")[-2000:] for name in ("slurmctld", "slurmd")]
            raise RuntimeError("\n".join(logs)) from None

    def _inside(self, path: str) -> str:
        return f"/proc/{self.host.pid}/root{path}"

    def _append(self, path: str, text: str, fresh: bool = False) -> None:
        os.makedirs(os.path.dirname(self._inside(path)), exist_ok=True)
        with open(self._inside(path), "w" if fresh else "a") as file:
            file.write(text)

    def words(self, user: str, *words: str) -> list[str]:
        rights = [f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"]
        home = f"/home/{user}"
        return ["setpriv", *rights, "env", "-C", home, f"HOME={home}", "TMPDIR=/tmp", *words]

    def run(self, user: str, *words: str) -> Result:
        return self.host.run(self.words(user, *words))

    def start(self, user: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.host.inside(self.words(user, *words)),
            env=self.host.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def write(self, user: str, name: str, text: str) -> None:
        with open(f"{self.home(user)}/{name}", "w") as file:
            file.write(text)

    def read(self, user: str, name: str) -> str:
        path = f"{self.home(user)}/{name}"
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def running(self) -> dict[str, tuple[int, int]]:
        """The running containers: percent of one GPU's time and of its memory, by name."""
        told = json.loads(self.host.check(["/usr/local/sbin/vcuda", "ps", "--json"]))
        return {
            each["name"]: (each["core_percent"], round(100 * each["memory_bytes"] / GPU_BYTES))
            for each in told
            if each["status"] == "running"
        }


def missing() -> str | None:
    """Why Slurm cannot run here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed; run 'make prepare'"
    return None if cgroups.is_v1() else "this host has no cgroup v1 freezer"
