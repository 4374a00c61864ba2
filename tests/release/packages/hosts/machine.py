"""A machine with a fresh Debian 12, or another root, in namespaces, to install packages on."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence

from support.host import cgroups, own_run
from support.host.namespaces import Namespaces
from support.host.private_host import PATH, Result
from support.needed import skip_or_fail
from support.waiting import until

REPOSITORY = os.path.abspath(__file__).rsplit("/", 5)[0]
INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "machine_init.py")
DEBIAN = REPOSITORY + "/build/debian"

CLONE_NEWNET = 0x40000000

_serial = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


class Machine:
    """shared: a folder of this host that the machine sees as /mnt/shared.

    boots: systemd runs on it; without, nothing does. size: of what can be written to its disk.
    tree: what is on it. layer: a folder that keeps what it writes; "": it ends with the machine.
    """

    def __init__(self, boots: bool, size: str, tree: str, layer: str = "") -> None:
        if os.geteuid() != 0:
            skip_or_fail("a machine takes root")
        if tree.endswith(DEBIAN) and not os.path.exists(DEBIAN + ".made"):
            skip_or_fail("build/debian not made; run tests/support/make-root")
        self.name = own_run.cgroup_name(f"m{next(_serial)}")
        self.folder = own_run.scratch_folder()
        self.shared = self.folder + "/shared"
        os.mkdir(self.shared)
        self.boots, cgroup = boots, [self.name] if boots else []
        try:
            self._world = Namespaces(
                INIT, self.folder, tree, size, layer, *cgroup, log=self.folder + "/init.log"
            )
        except RuntimeError:
            shutil.rmtree(self.folder)
            raise
        self.pid = self._world.pid
        if boots:
            until(self._is_up, "systemd")

    def _is_up(self) -> bool:
        scope = "/sys/fs/cgroup/init.scope"
        return self.exists(scope) and self.run("systemctl", "is-system-running").rc == 0

    def words(self, argv: Sequence[str]) -> list[str]:
        spaces = ["--mount", "--pid", "--net", "--cgroup", "--root", "--wd"]
        # Where systemd sorts services into cgroups, a login is in one of the machine's too.
        join = ["sh", "-c", 'echo 0 >/sys/fs/cgroup/init.scope/cgroup.procs; exec "$@"', "sh"]
        return ["nsenter", "-t", str(self.pid), *spaces, "--", *(join if self.boots else []), *argv]

    def start(self, *argv: str, **options: object) -> subprocess.Popen[str]:
        """In the background; both its outputs are pipes."""
        return subprocess.Popen(
            self.words(argv),
            env={"PATH": PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def run(self, *argv: str) -> Result:
        """What is started must not keep these outputs open."""
        process = self.start(*argv)
        out, err = process.communicate(timeout=120)
        return Result(process.returncode, out, err)

    def check(self, *argv: str) -> str:
        """What has to succeed; its standard output."""
        result = self.run(*argv)
        assert result.rc == 0, f"{' '.join(argv)}: exit {result.rc}\n{result.stdout}{result.stderr}"
        return result.stdout

    def path(self, inside: str) -> str:
        """Where this host sees a file of the machine. A link in the way would lead elsewhere."""
        return f"/proc/{self.pid}/root{inside}"

    def read(self, inside: str) -> str:
        with open(self.path(inside)) as file:
            return file.read()

    def write(self, inside: str, text: str, mode: int = 0o644) -> str:
        os.makedirs(os.path.dirname(self.path(inside)), exist_ok=True)
        with open(self.path(inside), "w") as file:
            file.write(text)
        os.chmod(self.path(inside), mode)
        return inside

    def exists(self, inside: str) -> bool:
        return os.path.lexists(self.path(inside))

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Sockets that this thread opens meanwhile are in the machine's network, and stay so."""
        with open(f"/proc/{self.pid}/ns/net") as there, open("/proc/thread-self/ns/net") as here:
            _enter_network(there.fileno())
            try:
                yield
            finally:
                _enter_network(here.fileno())

    def names(self) -> set[str]:
        """Every path on its disk and in its /run that carries vcuda's name."""
        found = self.check("find", "/", "/run", "-xdev", "-name", "*vcuda*")
        return set(found.splitlines())

    def wait_for(self, inside: str) -> None:
        until(lambda: self.exists(inside), inside)

    def sha256(self, inside: str) -> str:
        with open(self.path(inside), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def close(self) -> None:
        self._world.close()
        for group in cgroups.named(self.name) | cgroups.named("vcuda-" + self.name):
            cgroups.remove("/" + group)
        shutil.rmtree(self.folder)


def _enter_network(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def machine(boots: bool = False, size: str = "512M", tree: str = DEBIAN) -> Iterator[Machine]:
    made = Machine(boots, size, tree)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def tree_of(prepare: Callable[[Machine], None], below: str = DEBIAN) -> Iterator[str]:
    """What `prepare` makes of a machine's disk, as the `tree` of others. below: its own `tree`."""
    folder = own_run.scratch_folder()
    layer = folder + "/layer"
    os.mkdir(layer)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512M", "vcuda-tests", layer], check=True)
    try:
        made = Machine(False, "", below, layer)
        try:
            prepare(made)
        finally:
            made.close()
        yield f"{layer}/upper:{below}"
    finally:
        subprocess.run(["umount", "--lazy", layer], check=True)
        shutil.rmtree(folder)
