"""Containers and hosts short of resources: a share is given completely or not at all."""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine, Wanted
from support.product import MIB, REPOSITORY
from support.waiting import until
from support.wrapper.entry_points import (
    FILL,
    FILLED,
    KINDS,
    MAIN_ENTRY_POINTS,
    WRAPPER,
    EntryPoint,
    filled,
    user_namespace,
)
from support.wrapper.runtime_recorder import Recorder


def read_only(config: dict[str, Any], bundle: str) -> None:
    config["root"]["readonly"] = True


def no_privileges(config: dict[str, Any], bundle: str) -> None:
    config["process"]["noNewPrivileges"] = True
    config["process"]["user"] = {"uid": 65534, "gid": 65534}
    config["process"]["capabilities"] = {"bounding": [], "effective": [], "permitted": []}


@pytest.mark.parametrize(
    "change", [read_only, no_privileges, user_namespace], ids=lambda change: change.__name__
)
def test_a_container_that_may_do_little_gets_its_share(
    entry_point: EntryPoint, container: str, change: Any
) -> None:
    result = entry_point.run(entry_point.with_share(container, *FILL), change)
    if skip_or_fail(entry_point, change):
        assert (result.rc != 0, result.stdout) == (True, "")
    else:
        assert filled(result) == FILLED
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


def skip_or_fail(entry_point: EntryPoint, change: Any) -> bool:
    """Where docs/hook.md and docs/security.md say so, the container fails instead."""
    if change is read_only:  # crun has closed the root before it calls this kind
        return (entry_point.engine.low_level, entry_point.kind) == ("crun", "createContainer")
    if change is user_namespace:  # the hook is inside; runc mounts nodes of the host's /dev alone
        on_runc = entry_point.engine.low_level == "runc"
        return entry_point.kind == "createContainer" or (on_runc and entry_point.kind == WRAPPER)
    return False


@pytest.fixture(scope="module")
def default_seccomp(start_engine: Callable[[str], Engine], session_folder: str) -> Any:
    """The profile that Docker gives every container, as it stands in the config.json it writes."""
    docker = start_engine("docker")
    recorder = Recorder(session_folder + "/seccomp", docker.plain_runtime())
    with docker.using(recorder.path):
        ran = docker.run("seccomp", ["true"])
    assert ran.rc == 0, ran.stderr
    (config,) = recorder.configs()
    return config["linux"]["seccomp"]


def test_dockers_default_seccomp_profile_lets_a_share_work(
    entry_point: EntryPoint, container: str, default_seccomp: Any
) -> None:
    assert default_seccomp["defaultAction"] == "SCMP_ACT_ERRNO"

    def filtered(config: dict[str, Any], bundle: str) -> None:
        config["linux"]["seccomp"] = default_seccomp

    script = f"unshare -U true 2>/dev/null || echo filtered >&2; exec {' '.join(FILL)}"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), filtered)
    assert filled(result) == FILLED
    assert result.stderr == "filtered\n"


@pytest.mark.parametrize(
    "entry_point", [f"runc-v1-{kind}" for kind in (WRAPPER, *KINDS)], indirect=True
)
@pytest.mark.parametrize(
    ("megabytes", "processes"), [(4, 100), (64, 3), (4, 3)], ids=["4 MiB", "3 pids", "both"]
)
def test_under_tiny_limits_a_container_starts_with_its_share_or_not_at_all(
    entry_point: EntryPoint, container: str, megabytes: int, processes: int
) -> None:
    """What the runtime alone can start, starts with its share; createContainer alone may not.

    On cgroup v1: where v1 and v2 stand side by side, v2 has device rules only.
    """

    def tiny(config: dict[str, Any], bundle: str) -> None:
        resources = config["linux"]["resources"]
        resources["memory"] = {"limit": megabytes * MIB}
        resources["pids"] = {"limit": processes}

    words = ["open-node", "/usr/local/vcuda/usage", "/usr/local/vcuda/limits"]
    plain = entry_point.plain(Wanted(container, words), tiny)
    result = entry_point.run(entry_point.with_share(container, *words), tiny)
    if entry_point.kind != "createContainer" and plain.rc == 0:
        assert result.rc == 0, result.stderr
    if result.rc == 0:
        assert result.stdout.split() == [words[1] + ":", "ok", words[2] + ":", "EACCES"]
    else:
        assert result.stdout == ""
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


@pytest.fixture(params=["full", "read-only"])
def hurt_state(request: pytest.FixtureRequest, entry_point: EntryPoint) -> Iterator[str]:
    """The state folder on a file system with no room, or one that cannot be written."""
    state = entry_point.product.state_dir(entry_point.engine)
    os.makedirs(state, exist_ok=True)
    host = entry_point.engine.host
    host.check(["mount", "-t", "tmpfs", "-o", "size=32k,mode=755", "none", state])
    if request.param == "full":
        script = f"mkdir {state}/allocations {state}/containers; : >{state}/lock; "
        host.run(["sh", "-c", script + f"cat /dev/zero >{state}/filler 2>/dev/null"])
    else:
        host.check(["mount", "-o", "remount,ro", state])
    yield request.param
    host.check(["umount", state])


@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_state_folder_without_room_is_one_line_and_no_container(
    entry_point: EntryPoint, container: str, hurt_state: str, scratch: str
) -> None:
    log = os.path.join(scratch, "log")
    result = entry_point.run(entry_point.with_share(container, "echo", "started"), log=log)
    assert (result.rc != 0, result.stdout) == (True, "")
    with open(log) as lines:
        lines_of_page = [
            line for line in lines if "cannot be written" in line
        ]  # runc repeats a hook's
    reason = {
        "full": "No space left on device; free space there",
        "read-only": "Read-only file system; mount it read-write",
    }[hurt_state]
    wanted = f"cannot be written: {reason}, or set state-dir"
    assert lines_of_page and all(wanted in line for line in lines_of_page)
    state = entry_point.product.state_dir(entry_point.engine)
    folders = [f"{state}/{name}" for name in ("allocations", "containers")]
    listed = entry_point.engine.host.run(["ls", "-A", *folders]).stdout
    assert container not in listed
    # A container that asks for nothing does not notice.
    assert entry_point.run(Wanted(container, ["echo", "started"])).stdout == "started\n"


@pytest.fixture
def shipped_file_system(entry_point: EntryPoint) -> Iterator[None]:
    """The state folder on the file system that the packages mount there."""
    unit = configparser.ConfigParser()
    unit.read(REPOSITORY + "/packaging/run-vcuda.mount")
    mount, host = unit["Mount"], entry_point.engine.host
    state = entry_point.product.state_dir(entry_point.engine)
    os.makedirs(state, exist_ok=True)
    host.check(["mount", "-t", mount["Type"], "-o", mount["Options"], mount["What"], state])
    yield
    host.check(["umount", state])


def free(entry_point: EntryPoint, what: str) -> int:
    """Free blocks (%a) or inodes (%d) of the state folder's file system."""
    state = entry_point.product.state_dir(entry_point.engine)
    return int(entry_point.engine.host.check(["stat", "-f", "-c", what, state]))


USAGE = "/usr/local/vcuda/usage"


# Whichever entry point made the page, it is the same file on the same file system.
@pytest.mark.parametrize("entry_point", ["runc-v1-wrapper"], indirect=True)
@pytest.mark.parametrize(
    ("script", "what"),
    [
        (f"while :; do printf %4000000d 0; done >>{USAGE} 2>/dev/null", "%a"),
        (f"set-attributes {USAGE}", "%d"),
    ],
    ids=["bytes", "attributes"],
)
def test_a_container_that_adds_to_its_usage_page_for_ever_stops_no_other(
    entry_point: EntryPoint, container: str, shipped_file_system: None, script: str, what: str
) -> None:
    """It has no limit of memory, and its page is a file of the host's."""
    empty = free(entry_point, what)
    greedy = entry_point.holding(container + "-greedy", "sh", "-c", script)
    with entry_point.holding(container + "-other"), greedy:
        for _ in range(5):
            until(lambda: free(entry_point, what) < 40, "the file system to be full")
            assert filled(entry_point.run(entry_point.with_share(container, *FILL))) == FILLED
        going_on = entry_point.engine.exec(container + "-other", FILL)
        assert filled(going_on) == FILLED
        until(lambda: free(entry_point, what) < empty / 2, "it to go on, as it did all the time")
    state = entry_point.product.state_dir(entry_point.engine)
    assert entry_point.engine.host.check(
        ["ls", f"{state}/allocations", f"{state}/containers"]
    ).split() == [
        f"{state}/allocations:",
        f"{state}/containers:",
    ]
    # Some stay: the lock and the folders.
    until(lambda: free(entry_point, what) > empty - 40, "its page to be given back")


@pytest.mark.parametrize("entry_point", ["runc-v1-wrapper"], indirect=True)
def test_a_page_that_a_container_handed_on_stops_no_other_after_its_end(
    entry_point: EntryPoint, container: str, shipped_file_system: None, scratch: str
) -> None:
    """Over a socket of a volume that two share; here the writer opened it from outside."""
    goes_on = scratch + "/goes-on"
    page = f"{entry_point.product.state_dir(entry_point.engine)}/containers/{container}-gone/usage"
    script = f"while [ -e {goes_on} ]; do printf %4000000d 0; done >>{page} 2>/dev/null"
    with open(goes_on, "w"), entry_point.holding(container + "-gone"):
        writer = entry_point.engine.host.daemon(["sh", "-c", script], "writer.log")
        until(lambda: free(entry_point, "%a") < 40, "the file system to be full")
    try:
        assert entry_point.engine.host.run(["ls", page]).rc != 0
        for _ in range(5):
            until(lambda: free(entry_point, "%a") < 40, "the file system to be full again")
            assert filled(entry_point.run(entry_point.with_share(container, *FILL))) == FILLED
    finally:
        os.unlink(goes_on)
        writer.wait()


@pytest.mark.parametrize("entry_point", ["runc-v1-wrapper"], indirect=True)
def test_a_container_that_leases_its_page_holds_up_no_command(
    entry_point: EntryPoint, container: str
) -> None:
    """Its root is the page's owner. An open that waits for the lease waits 45 s."""
    hostile = container + "-hostile"
    page = f"{entry_point.product.state_dir(entry_point.engine)}/containers/{hostile}/usage"
    vcuda = [
        "timeout",
        "30",
        f"{entry_point.product.prefix}/bin/vcuda",
        "--config",
        entry_point.product.config,
    ]
    with (
        entry_point.holding(container + "-other"),
        entry_point.holding(hostile, "hold-lease", USAGE),
    ):
        inode = entry_point.engine.host.check(["stat", "-c", "%i", page]).strip()
        until(lambda: is_leased(inode), "the page to be leased")
        listed = json.loads(entry_point.engine.host.check([*vcuda, "ps", "--json"]))
        assert is_leased(inode)
    usage = {entry["id"]: entry["usage"] for entry in listed}
    assert (usage[container + "-other"], usage[hostile]) == ("told", "unreadable")


@pytest.mark.parametrize("entry_point", ["runc-v1-wrapper"], indirect=True)
def test_where_pages_are_kept_open_a_container_gets_no_lease(
    entry_point: EntryPoint, container: str
) -> None:
    socket = ClaimServer(
        entry_point.engine.host,
        entry_point.product,
        entry_point.product.state_dir(entry_point.engine),
    )
    script = f"until timeout 1 hold-lease {USAGE}; [ $? = 1 ]; do :; done; echo refused"
    try:
        result = entry_point.run(entry_point.with_share(container, "sh", "-c", script))
    finally:
        socket.close()
    assert (result.stdout, result.rc) == ("refused\n", 0)


def is_leased(inode: str) -> bool:
    with open("/proc/locks") as locks:
        return any(" LEASE " in line and f":{inode} " in line for line in locks)
