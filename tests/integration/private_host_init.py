"""Process 1 of a private host: the engines of a test see a host of their own.

Run as a script by private_host.py: `python -I -S private_host_init.py FOLDER host|v2`. New mount,
pid and network namespaces; /etc, /run and /var can be written, but what is written goes to a tmpfs
that disappears with the namespace. When the test process dies, by whatever signal, the kernel kills
this process, and with it every daemon, shim and container of the namespace.

Standard output: the pid of process 1 as the host sees it, then `ready`.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x41

# Engines write to these whatever roots they are given: containerd's shims keep their sockets in
# /run/containerd, dockerd makes /etc/docker/key.json, Podman keeps a cache in /var/lib/containers.
COVERED = ("/etc", "/run", "/var")

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def cover(scratch: str) -> None:
    """Lay a writable layer over the host's folders, so that nothing reaches the host's files."""
    mount("-t", "tmpfs", "-o", "mode=755", "vcuda-tests", scratch)
    for folder in COVERED:
        upper, work = (os.path.join(scratch, folder[1:] + kind) for kind in (".upper", ".work"))
        os.mkdir(upper)
        os.mkdir(work)
        options = f"lowerdir={folder},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "-o", options, "overlay", folder)
    # Podman keeps its locks in one file of /dev/shm, whatever its roots are.
    mount("-t", "tmpfs", "-o", "mode=1777", "vcuda-tests", "/dev/shm")


def pure_cgroup_v2() -> None:
    """Replace the host's cgroup mounts, v1 or hybrid, by the one of pure v2."""
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1] for line in mounts]
    for point in reversed(points):
        if point == "/sys/fs/cgroup" or point.startswith("/sys/fs/cgroup/"):
            subprocess.run(["umount", "-l", point], check=True)
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


def without_securityfs() -> None:
    """dockerd would load its AppArmor profile into the kernel, where it outlives the namespace."""
    point = "/sys/kernel/security"
    if os.path.ismount(point):
        subprocess.run(["umount", "-l", point], check=True)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))


def reap(folder: str) -> None:
    """Collect orphans for ever; a line `PID STATUS` each tells how a detached container ended."""
    with open(os.path.join(folder, "reaped"), "a", buffering=1) as reaped:
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                # Orphans of the future: SIGCHLD ends the pause.
                signal.sigwait([signal.SIGCHLD])
                continue
            # Shell's way: 128 + signal.
            code = os.waitstatus_to_exitcode(status)
            reaped.write(f"{pid} {code if code >= 0 else 128 - code}\n")


def main() -> None:
    folder, cgroups = sys.argv[1:]
    parent = os.getppid()
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the test process is gone")
    # Without a handler the kernel may drop it while it is not waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    if libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    child = os.fork()
    if child:
        print(child, flush=True)
        # The child alone says `ready`: when it dies before, the reader must see the end of file.
        os.close(1)
        os.waitpid(child, 0)
        return
    die_with_parent()
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    loopback_up()
    without_securityfs()
    if cgroups == "v2":
        pure_cgroup_v2()
    scratch = os.path.join(folder, "covered")
    os.mkdir(scratch)
    cover(scratch)
    print("ready", flush=True)
    os.close(1)
    reap(folder)


if __name__ == "__main__":
    main()
