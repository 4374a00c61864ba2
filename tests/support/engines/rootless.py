"""Engines of a user who is not root, in a user namespace of its own."""

from __future__ import annotations

from support.engines.base import IMAGE, Engine, Wanted
from support.engines.docker import Docker
from support.engines.podman import Podman

USER = "alice"
UID = 1500


class Rootless(Engine):
    """A user that owns one folder, with subordinate ids."""

    ids = f"{USER}:100000:65536"

    def make_user(self) -> None:
        home = self.host.path(USER)
        script = f"echo {USER}:x:{UID}:{UID}::{home}:/bin/sh >>/etc/passwd"
        script += f"; echo '{self.ids}' | tee -a /etc/subuid /etc/subgid"
        script += f"; mkdir -m 700 {home} {home}/run; chown {UID}:{UID} {home} {home}/run"
        # With the modes of run-vcuda.mount: users must reach a slice's pages.
        state = self.host.path("vcuda")
        script += f"; mkdir -m 755 {state}; mount --bind {state} {state}"
        script += f"; mount -o remount,bind,nosuid,nodev,noexec {state}"
        self.host.check(["sh", "-c", script])

    def as_user(self, *command: str) -> list[str]:
        home = self.host.path(USER)
        rights = (f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--")
        where = (f"--chdir={home}", f"HOME={home}", f"TMPDIR={home}")
        return ["setpriv", *rights, "env", *where, f"XDG_RUNTIME_DIR={home}/run", *command]


class RootlessPodman(Rootless, Podman):
    name = "podman-rootless"
    programs = (*Podman.programs, "setpriv", "newuidmap")

    def open(self) -> None:
        self._give_the_host_a_dev_of_its_own()
        self.make_user()
        self.host.check(self.command("import", self.files.layer, IMAGE))

    def _give_the_host_a_dev_of_its_own(self) -> None:
        """Must run before Podman's first start, because its pause process retains the mounts."""
        made = self.host.path("covered/dev")
        script = f"""
          set -e
          mkdir {made}
          mount -t tmpfs -o mode=755 vcuda-tests {made}
          cd /dev
          cp -a null zero full random urandom tty ptmx fd stdin stdout stderr {made}
          for folder in pts shm; do mkdir {made}/$folder; mount --rbind $folder {made}/$folder; done
          mount --move {made} /dev
        """
        self.host.check(["sh", "-c", script])

    def command(self, *arguments: str) -> list[str]:
        return self.as_user(
            "podman",
            # Podman warns if the user has only one id.
            "--log-level=fatal",
            f"--runtime={self.runtime}",
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
            *arguments,
        )

    def _options(self, wanted: Wanted) -> list[str]:
        no_rights_to = ("--cgroup-parent=", "--cap-add=")
        return [word for word in super()._options(wanted) if not word.startswith(no_rights_to)]


class RootlessPodmanOfOneId(RootlessPodman):
    name = "podman-rootless-one-id"
    ids = ""


class RootlessDocker(Rootless, Docker):
    """dockerd as dockerd-rootless.sh starts it, in the host's network: a tunnel would need root."""

    name = "docker-rootless"
    programs = (*Docker.programs, "setpriv", "newuidmap", "rootlesskit")

    def open(self) -> None:
        self.make_user()
        home = self.host.path(USER)
        self._socket = f"{home}/run/d.sock"
        self.host.daemon(
            self.as_user(
                "rootlesskit",
                "--net=host",
                "--copy-up=/etc",
                "--copy-up=/run",
                f"--state-dir={home}/run/rootlesskit",
                "--propagation=rslave",
                "sh",
                "-c",
                'rm -f /run/docker /run/containerd; exec "$@"',
                "sh",
                *self.daemon(f"{home}/data", f"{home}/run/exec"),
                "--rootless",
            ),
            "dockerd.log",
        )
        self.begin()

    def command(self, *arguments: str) -> list[str]:
        return self.as_user(*super().command(*arguments))
