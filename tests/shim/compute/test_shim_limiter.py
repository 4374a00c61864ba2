"""The compute limit of one container in virtual time: ten seconds of each workload at each limit.

Two and more: test_turns.py.
"""

from __future__ import annotations

import pytest

from support.gpu.guest import GIB, Guest, share
from support.softgpu.virtual_time import together

# Only the limiter's own error.
ALONE = 0.005
SECONDS = "10"
# Of the client `launches`: threads, streams, launched ahead (0: waits for each), pattern, short us,
# long us, one in so many, blocks.
WORKLOADS = {
    "async 50 us": "1 0 64 periodic 50 50 1 4096",
    "sync 5 ms": "1 0 0 periodic 5000 5000 1 4096",
    "sync 300 ms": "1 0 0 periodic 300000 300000 1 4096",
    "kernels of one block": "1 0 64 periodic 50 50 1 1",
}
GRAPHS = {"graph of 100 x 50 us": "4", "graph of 100 x 50 us, sync": "0"}


@pytest.fixture
def command(client):
    def make(name):
        if name in GRAPHS:
            return [client("graphs"), SECONDS, GRAPHS[name]]
        return [client("launches"), SECONDS, *WORKLOADS[name].split()]

    return make


@pytest.mark.parametrize("percent", [10, 30, 50, 80])
@pytest.mark.parametrize("name", [*WORKLOADS, *GRAPHS])
def test_whatever_a_container_runs_it_gets_its_percent(
    host, new_guest, tmp_path, command, name, percent
):
    guest = new_guest(share(host.uuids[0], GIB, percent))
    (result,) = together(tmp_path, (guest, command(name)))
    assert result["share"] == pytest.approx(percent / 100, abs=ALONE)
    # The charge equals the GPU's work, including work in progress at the end.
    charged = guest.read_usage().gpus[0].busy_ns / 1e9
    assert charged == pytest.approx(result["gpu_seconds"], abs=0.025)


def test_a_run_with_the_same_seed_repeats_its_events(new_host, tmp_path, command):
    """So a missed share can be reproduced and debugged."""
    names = ["async 50 us", "sync 5 ms", "graph of 100 x 50 us"]

    def course(folder):
        folder.mkdir()
        host = new_host()
        guests = [
            Guest(str(folder / str(percent)), host.path, [share(host.uuids[0], GIB, percent)])
            for percent in (20, 30, 50)
        ]
        printed = together(folder, *zip(guests, map(command, names)))
        usage = [guest.read_usage().gpus[0] for guest in guests]
        return printed, [(gpu.busy_ns, gpu.balance_ns, gpu.throttled_ns) for gpu in usage]

    assert course(tmp_path / "1") == course(tmp_path / "2")
