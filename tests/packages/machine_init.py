"""Process 1 of a machine that packages are installed on; machine.py says what it is.

Run as a script: `python -I -S machine_init.py FOLDER TREE SIZE [CGROUP]`. New mount, pid and
network namespaces; the root is TREE with a layer over it that holds SIZE and is gone with them.
Standard output: the pid of process 1 as the host sees it, then `ready`. With CGROUP systemd is
started in a cgroup v2 of this name; without one, nothing but this process runs. When the test's
process dies, this one does, and all that runs on the machine.
"""

import ctypes
import os
import signal
import subprocess
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEWCGROUP = 0x02000000
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def enter_root(folder: str, tree: str, size: str) -> None:
    layer, root = f"{folder}/layer", f"{folder}/root"
    os.mkdir(layer)
    os.mkdir(root)
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
    os.mkdir(root + "/mnt/shared")
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
    if libc.unshare(CLONE_NEWCGROUP):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["umount", "/sys/fs/cgroup"], check=True)
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


def become_systemd() -> None:
    log = os.open("/run/systemd.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    environment = {"container": "vcuda-tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    os.execve("/lib/systemd/systemd", ["systemd", "--unit=multi-user.target"], environment)


def main() -> None:
    folder, tree, size, *cgroup = sys.argv[1:]
    parent = os.getppid()
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the test process is gone")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    if libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    child = os.fork()
    if child:
        print(child, flush=True)
        os.close(1)
        os.waitpid(child, 0)
        return
    die_with_parent()
    mount("--make-rprivate", "/")
    enter_root(folder, tree, size)
    if cgroup:
        enter_cgroup(*cgroup)
        # As on a host, where systemd does it itself: what it mounts for a service has to reach it.
        mount("--make-rshared", "/")
    print("ready", flush=True)
    if cgroup:
        become_systemd()
    os.close(1)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigwait([signal.SIGCHLD])


if __name__ == "__main__":
    main()
