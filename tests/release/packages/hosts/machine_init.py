"""Process 1 of the machine of machine.py.

Run as a script: `python -I -S machine_init.py FOLDER TREE SIZE LAYER [CGROUP]`. The root is TREE
with a layer over it: in the folder LAYER, or, where that is empty, one of SIZE that ends with
the namespaces. With CGROUP systemd is started in a cgroup v2 of this name; without one, nothing but
this process runs.
"""

import ctypes
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 4)[0])
from support.host import first_process
from support.host.first_process import libc, mount

# Units for hardware, consoles and upkeep, which no test sees: half of a boot's processor time.
NOT_STARTED = (
    "console-getty.service", "getty.target", "getty-static.service", "getty@.service",
    "modprobe@.service", "systemd-modules-load.service", "systemd-sysctl.service",
    "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount",
    "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "e2scrub_reap.service",
    "systemd-journal-flush.service", "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service", "systemd-random-seed.service",
    "systemd-remount-fs.service", "systemd-sysusers.service", "systemd-tmpfiles-setup-dev.service",
    "timers.target",
)  # fmt: skip


def enter_root(folder: str, tree: str, size: str, layer: str) -> None:
    root = f"{folder}/root"
    os.mkdir(root)
    if not layer:
        layer = f"{folder}/layer"
        os.mkdir(layer)
        mount("-t", "tmpfs", "-o", f"mode=755,size={size}", "vcuda-tests", layer)
    os.mkdir(layer + "/upper")
    os.mkdir(layer + "/work")
    options = f"lowerdir={tree},upperdir={layer}/upper,workdir={layer}/work"
    mount("-t", "overlay", "-o", options, "overlay", root)
    mount("-t", "proc", "proc", root + "/proc")
    mount("--rbind", "/sys", root + "/sys")
    mount("--rbind", "/dev", root + "/dev")
    # Not the host's: Podman and others keep locks there.
    mount("-t", "tmpfs", "-o", "mode=1777", "vcuda-tests", root + "/dev/shm")
    mount("-t", "tmpfs", "-o", "mode=755", "vcuda-tests", root + "/run")
    os.makedirs(root + "/mnt/shared", exist_ok=True)
    mount("--bind", folder + "/shared", root + "/mnt/shared")
    os.chdir(root)
    if libc.syscall(155, b".", b".") or libc.umount2(b".", 2):  # pivot_root; MNT_DETACH
        sys.exit(f"pivot_root: {os.strerror(ctypes.get_errno())}")
    os.chdir("/")


def enter_cgroup(name: str) -> None:
    """What systemd takes for the root of a cgroup v2 that is all its own."""
    subprocess.run(["umount", "-R", "/sys"], check=True)
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    os.mkdir("/sys/fs/cgroup/" + name)
    with open(f"/sys/fs/cgroup/{name}/cgroup.procs", "w") as processes:
        processes.write("0")
    first_process.unshare(first_process.CLONE_NEWCGROUP)
    subprocess.run(["umount", "/sys/fs/cgroup"], check=True)
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


def become_systemd() -> None:
    os.makedirs("/run/systemd/system")
    for unit in NOT_STARTED:  # masked until this machine ends
        os.symlink("/dev/null", f"/run/systemd/system/{unit}")
    log = os.open("/run/systemd.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    environment = {"container": "vcuda-tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    os.execve("/lib/systemd/systemd", ["systemd", "--unit=multi-user.target"], environment)


def main() -> None:
    folder, tree, size, layer, *cgroup = sys.argv[1:]
    first_process.become()
    enter_root(folder, tree, size, layer)
    if cgroup:
        enter_cgroup(*cgroup)
        # As on a host, where systemd does it itself: what it mounts for a service has to reach it.
        mount("--make-rshared", "/")
    first_process.say_ready()
    if cgroup:
        become_systemd()
    os.close(1)
    while True:
        first_process.next_orphan()


if __name__ == "__main__":
    main()
