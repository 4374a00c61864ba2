"""runc and crun with a bundle of our own, on cgroup v1 and on pure v2."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence

from support.bundle import rootfs, spec
from support.engines.base import Engine, Result, Wanted
from support.host import cgroups


class LowLevel(Engine):
    def open(self) -> None:
        os.mkdir(self.host.path("bundles"))

    def bundle(self, container_id: str) -> str:
        return self.host.path("bundles", container_id)

    def environment(self) -> Mapping[str, str]:
        return {}

    def make_bundle(self, wanted: Wanted) -> str:
        """A bundle folder with a root file system of its own and a plain config.json."""
        bundle = self.bundle(wanted.container_id)
        rootfs.copy(self.files.rootfs, os.path.join(bundle, "rootfs"))
        config = spec.plain(
            wanted.args,
            cgroups_path=f"{self.host.cgroup_parent}/{wanted.container_id}",
            env=wanted.env,
            annotations=wanted.annotations,
            mounts=wanted.mounts,
        )
        with open(os.path.join(bundle, "config.json"), "w") as file:
            json.dump(config, file)
        return bundle

    def command(self, *arguments: str) -> list[str]:
        return [self.runtime, "--root", self.host.path("root"), *arguments]

    def call(self, *arguments: str) -> Result:
        return self.host.run(self.command(*arguments), env=self.environment())

    def _run(self, wanted: Wanted) -> Result:
        bundle = self.make_bundle(wanted)
        try:
            return self.call("run", "--bundle", bundle, wanted.container_id)
        finally:
            shutil.rmtree(bundle)

    def _start(self, wanted: Wanted) -> Result:
        bundle = self.make_bundle(wanted)
        out, err = os.path.join(bundle, "stdout"), os.path.join(bundle, "stderr")
        # The container keeps what `create` had as standard output.
        pid_file = os.path.join(bundle, "pid")
        create = self.command(
            "create", "--bundle", bundle, "--pid-file", pid_file, wanted.container_id
        )
        rc = self.host.run_to_files(create, out, err, self.environment())
        if rc:
            return Result(rc, "", self.host.read("bundles", wanted.container_id, "stderr"))
        return self.call("start", wanted.container_id)

    def exec(self, container_id: str, args: Sequence[str]) -> Result:
        return self.call("exec", container_id, *args)

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        self.call("kill", container_id, signal)

    def wait(self, container_id: str) -> int:
        pid = int(self.host.read("bundles", container_id, "pid"))
        return self.host.exit_code_of_orphan(pid)

    def logs(self, container_id: str) -> str:
        return self.host.read("bundles", container_id, "stdout")

    def delete(self, container_id: str) -> None:
        self.call("delete", "--force", container_id)
        shutil.rmtree(self.bundle(container_id), ignore_errors=True)


class RuncV1(LowLevel):
    name = "runc-v1"
    programs = ("runc",)

    @classmethod
    def missing(cls) -> str | None:
        absent = super().missing()
        return absent or (None if cgroups.is_v1() else "this host has no cgroup v1 devices")


class RuncV2(LowLevel):
    name = "runc-v2"
    programs = ("runc",)
    cgroup_world = "v2"


class CrunV2(LowLevel):
    name = "crun-v2"
    programs = ("crun",)
    low_level = "crun"
    cgroup_world = "v2"

    def environment(self) -> Mapping[str, str]:
        # Only where it is needed: clients/no_setrlimit.c.
        return {} if _may_raise_limits() else {"LD_PRELOAD": self.files.no_setrlimit}


def _may_raise_limits() -> bool:
    cap_sys_resource = 1 << 24
    with open("/proc/self/status") as status:
        effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    return bool(int(effective, 16) & cap_sys_resource)
