"""The services of the debs in a cluster, with the Python packages that Debian 12 has."""

from __future__ import annotations

import contextlib
import http.client
import json

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from support.api_server.cluster_api import KubeApi
from support.api_server.fake_api_server import FakeApiServer
from support.scheduler import clusters
from support.scheduler.extender import Extender, client
from support.waiting import until
from vcuda_oci.model import names
from vcuda_plugin.kube import node_gpus

UNIT = "vcuda-scheduler-extender.service"
AGENT = "vcuda-node-agent.service"
PORT = 3456
POD = clusters.pod("asking", clusters.container(core=30, memory=16))


class Service(Extender):
    """The one that systemd runs."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.port = machine, PORT

    def connect(self) -> http.client.HTTPConnection:
        with self.machine.network():
            connection = super().connect()
            connection.connect()
            return connection

    def is_ready(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            self.tls = client(self.machine.path("/var/lib/private/vcuda-scheduler-extender"))
            return self.call("GET", "/readyz")[0] == 200
        return False


def test_the_extender_places_pods_and_has_no_rights_on_its_host(booted: Machine) -> None:
    debs = built.files("deb", built.folder(), "runtime", "scheduler-extender")
    installed = node.install(booted, debs)
    assert (installed.rc, installed.stderr) == (0, "")
    api = FakeApiServer()
    with contextlib.ExitStack() as stack:
        with booted.network():
            stack.enter_context(api.running())
        api.put(clusters.node("a", clusters.gpus_of("a", 16)), clusters.node("b"), POD)
        kubeconfig = api.kubeconfig(booted.path("/root/kubeconfig"))
        with open(kubeconfig) as file:
            booted.write("/etc/kubernetes/scheduler.conf", file.read(), 0o600)
        booted.check("systemctl", "start", UNIT)
        service = Service(booted)
        until(service.is_ready, booted.run("journalctl", "-u", UNIT).stdout)
        fitting = service.filter(POD, "a", "b")
        assert (fitting["NodeNames"], list(fitting["FailedAndUnresolvableNodes"])) == (["a"], ["b"])
        assert service.bind(POD, "a") == ""
        decision = json.loads(
            api.pod("asking")["metadata"]["annotations"][names.ANNOTATION_DECISION]
        )
        assert [share["uuid"] for share in decision["containers"]["main"]] == ["GPU-a-0"]
        code, page = service.call("GET", "/metrics")
        assert (code, b"vcuda_extender_nodes 2.0" in page) == (200, True)
        pid = booted.check("systemctl", "show", "--property=MainPID", "--value", UNIT).strip()
        status = dict(
            line.split(":\t", 1) for line in booted.read(f"/proc/{pid}/status").splitlines()
        )
        assert status["CapEff"] == "0" * 16
        assert "0" not in status["Uid"].split()
        booted.check("systemctl", "stop", UNIT)
        ended = booted.check("systemctl", "show", "--property=Result", "--value", UNIT).strip()
        assert ended == "success"


def test_the_agent_publishes_its_gpus_to_the_cluster_and_serves_its_figures(
    booted: Machine,
) -> None:
    debs = built.files("deb", built.folder(), "runtime", "node-agent", "softgpu")
    installed = node.install(booted, debs)
    assert (installed.rc, installed.stderr) == (0, "")
    node.make_gpus(booted)
    api = KubeApi("n1")
    with booted.network():
        api.start()
    try:
        api.kubeconfig(booted.path("/root/kubeconfig"))
        start = "/usr/bin/vcuda-node-agent --kubeconfig /root/kubeconfig --node-name n1"
        drop_in = f"/etc/systemd/system/{AGENT}.d/cluster.conf"
        booted.write(drop_in, f"[Service]\nExecStart=\nExecStart={start}\n")
        booted.check("systemctl", "daemon-reload")
        booted.check("systemctl", "start", AGENT)
        until(lambda: "n1" in api.nodes, "the node's annotation")
        published = node_gpus.parse(api.nodes["n1"][names.ANNOTATION_NODE_GPUS])
        assert [gpu.index for gpu in published.gpus] == [0, 1]
        with booted.network():
            asking = http.client.HTTPConnection("127.0.0.1", 5678, timeout=30)
            asking.request("GET", "/metrics")
        with contextlib.closing(asking):
            answer = asking.getresponse()
            assert (answer.status, published.gpus[0].uuid in answer.read().decode()) == (200, True)
        booted.check("systemctl", "stop", AGENT)
    finally:
        api.stop()
