"""Process 1 of a private host for the engines of a test.

Run as a script by private_host.py: `python -I -S private_host_init.py FOLDER host|v2`. /etc, /run
and /var can be written, but what is written goes to a tmpfs that disappears with the namespace.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from support.host import first_process
from support.host.first_process import mount

SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x41

# Engines write to these folders whatever their roots are: containerd's shims put their sockets into
# /run/containerd, dockerd makes /etc/docker/key.json, Podman has a cache in /var/lib/containers.
COVERED = ("/etc", "/run", "/var")


def cover(scratch: str) -> None:
    """Lay a writable layer over the host's folders, so that nothing reaches the host's files."""
    mount("-t", "tmpfs", "-o", "mode=755", "vcuda-tests", scratch)
    for folder in COVERED:
        upper, work = (os.path.join(scratch, folder[1:] + kind) for kind in (".upper", ".work"))
        os.mkdir(upper)
        os.mkdir(work)
        options = f"lowerdir={folder},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "-o", options, "overlay", folder)
    # Podman's locks are in one file of /dev/shm, whatever its roots are.
    mount("-t", "tmpfs", "-o", "mode=1777", "vcuda-tests", "/dev/shm")


def pure_cgroup_v2() -> None:
    """Replace the host's cgroup mounts, v1 or hybrid, by one of pure v2."""
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1] for line in mounts]
    for point in reversed(points):
        if point == "/sys/fs/cgroup" or point.startswith("/sys/fs/cgroup/"):
            subprocess.run(["umount", "-l", point], check=True)
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


def without_securityfs() -> None:
    """Hide securityfs: dockerd would load an AppArmor profile, which outlives the namespace."""
    point = "/sys/kernel/security"
    if os.path.ismount(point):
        subprocess.run(["umount", "-l", point], check=True)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))


def reap(folder: str) -> None:
    """Reap orphans for ever; write a line `PID STATUS` for each."""
    with open(os.path.join(folder, "reaped"), "a", buffering=1) as reaped:
        while True:
            pid, status = first_process.next_orphan()
            # As in a shell: 128 + signal.
            code = os.waitstatus_to_exitcode(status)
            reaped.write(f"{pid} {code if code >= 0 else 128 - code}\n")


def main() -> None:
    folder, cgroups = sys.argv[1:]
    first_process.become()
    mount("-t", "proc", "proc", "/proc")
    loopback_up()
    without_securityfs()
    if cgroups == "v2":
        pure_cgroup_v2()
    scratch = os.path.join(folder, "covered")
    os.mkdir(scratch)
    cover(scratch)
    first_process.say_ready()
    os.close(1)
    reap(folder)


if __name__ == "__main__":
    main()
