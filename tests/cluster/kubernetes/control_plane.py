"""etcd, API server, controller manager and scheduler, on a private host's loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

from support.host.private_host import PrivateHost
from support.waiting import until

# An address of the private host's own loopback: nothing outside reaches it. It is also the first of
# the services, so pods reach the API server without a kube-proxy.
ADDRESS = "10.96.0.1"
SERVER = f"https://{ADDRESS}:443"
NODE = "node-1"

# Kubernetes' gates that DRA needs and that some versions have off by default.
DRA_GATES = (
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "ResourceHealthStatus",
)

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}", certificate-authority: {pki}/ca.crt}}}}]
users: [{{name: u, user: {{client-certificate: {pki}/{name}.crt, client-key: {pki}/{name}.key}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


class Service:
    """A daemon of a private host, which a test can end and start again."""

    def __init__(self, host: PrivateHost, name: str, *command: str) -> None:
        self.host, self.name, self.command = host, name, command
        self.more: tuple[str, ...] = ()
        self.start()

    def start(self) -> None:
        command = [*self.command, *self.more]
        self._process = self.host.daemon(command, self.name + ".log")

    def pid(self) -> int:
        """nsenter forks into the pid namespace: its one child is the daemon."""
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children") as children:
            return int((children.read().split() or [str(self._process.pid)])[0])

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            os.kill(self.pid(), number)
            self._process.wait(60)

    def log(self) -> str:
        return self.host.read(self.name + ".log")


class ControlPlane:
    """programs: a folder with Kubernetes' programs. Its scheduler is the cluster's own, without
    the extender."""

    def __init__(self, host: PrivateHost, programs: str) -> None:
        self.host, self.programs = host, programs
        self.pki = host.path("pki")
        self.services: list[Service] = []
        self.minor = int(self._says("--version").split(".")[1])
        self.gates = self._gates()
        off = ",".join(f"{gate}=true" for gate in DRA_GATES if self.gates.get(gate) == "false")
        # Of each program of Kubernetes, the kubelet too.
        self.gate_words = ["--feature-gates=" + off] if off else []
        os.mkdir(self.pki)
        host.check(["ip", "address", "add", ADDRESS + "/32", "dev", "lo"])
        self._certify()
        self._start(
            "etcd",
            "--data-dir=" + host.path("etcd"),
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        # Where that gate is alpha, a kube-scheduler that has it waits for DeviceTaintRules.
        kinds = ["--runtime-config=resource.k8s.io/v1alpha3=true"] if "Taints=true" in off else []
        words = (*self._api_words(), *self.gate_words, *kinds)
        self.api = self._start("kube-apiserver", *words)
        until(self.serves, "the API server, see kube-apiserver.log", 120)
        self.controllers = self._start(
            "kube-controller-manager",
            *self._as("controller-manager"),
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.pki}/ca.crt",
            f"--service-account-private-key-file={self.pki}/ca.key",
            "--secure-port=0",
            *self.gate_words,
        )
        self.scheduler = self._start(
            "kube-scheduler",
            *self._as("scheduler"),
            "--leader-elect=false",
            "--secure-port=0",
            *self.gate_words,
        )

    def restart(self, *words: str, api: tuple[str, ...] = ()) -> None:
        """Start all but etcd again with more options than by default. api: the API server's own."""
        for service in (self.api, self.controllers, self.scheduler):
            service.end(signal.SIGKILL)
            service.more = (*words, *api) if service is self.api else words
            service.start()
            until(self.serves, "the API server, see kube-apiserver.log", 120)

    def kubeconfig(self, name: str) -> str:
        return os.path.join(self.pki, name + ".conf")

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        program = os.path.join(self.programs, "kubectl")
        command = [program, "--kubeconfig", self.kubeconfig("admin"), *words]
        return subprocess.run(
            self.host.inside(command),
            env=self.host.environment(),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def serves(self) -> bool:
        return self.kubectl("get", "--raw", "/readyz").returncode == 0

    def has(self, path: str, kind: str) -> bool:
        """Whether the API server has a kind. path: of its version, such as /apis/apps/v1."""
        done = self.kubectl("get", "--raw", path)
        return done.returncode == 0 and kind in [
            each["kind"] for each in json.loads(done.stdout)["resources"]
        ]

    def has_mutating_policies(self) -> bool:
        """Whether there are MutatingAdmissionPolicies without a gate."""
        return self.has("/apis/admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")

    def _gates(self) -> dict[str, str]:
        """Each feature gate that this Kubernetes knows: "true", "false", its default."""
        return dict(re.findall(r"kube:(\w+)=true\|false \(.*default=(\w+)\)", self._says("--help")))

    def _says(self, option: str) -> str:
        program = os.path.join(self.programs, "kube-apiserver")
        return subprocess.run([program, option], capture_output=True, text=True, check=True).stdout

    def _start(self, name: str, *words: str) -> Service:
        service = Service(self.host, name, os.path.join(self.programs, name), *words)
        self.services.append(service)
        return service

    def _as(self, name: str) -> list[str]:
        return ["--kubeconfig", self.kubeconfig(name)]

    def _api_words(self) -> list[str]:
        pki = self.pki
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            "--bind-address=0.0.0.0",
            "--advertise-address=" + ADDRESS,
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-key-file={pki}/ca.crt",
            f"--service-account-signing-key-file={pki}/ca.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--cert-dir=" + self.host.path("apiserver-certs"),
        ]

    def _certify(self) -> None:
        """A certificate authority, and each account's certificate and kubeconfig."""
        self._openssl(
            "req", "-x509", *self._new_key("ca"), "-subj", "/CN=ca", "-out", f"{self.pki}/ca.crt"
        )
        for name, subject in (
            ("apiserver", "/CN=kube-apiserver"),
            ("admin", "/O=system:masters/CN=admin"),
            ("scheduler", "/CN=system:kube-scheduler"),
            ("controller-manager", "/CN=system:kube-controller-manager"),
            ("kubelet", f"/O=system:nodes/CN=system:node:{NODE}"),
        ):
            self._openssl(
                "req",
                "-x509",
                *self._new_key(name),
                "-subj",
                subject,
                "-CA",
                f"{self.pki}/ca.crt",
                "-CAkey",
                f"{self.pki}/ca.key",
                "-addext",
                f"subjectAltName=DNS:{NODE},IP:127.0.0.1,IP:{ADDRESS}",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-out",
                f"{self.pki}/{name}.crt",
            )
            text = KUBECONFIG.format(server=SERVER, pki=self.pki, name=name)
            self.host.write(f"pki/{name}.conf", text)

    def _new_key(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        return [*curve, "-keyout", f"{self.pki}/{name}.key"]

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)
