"""`vcuda why`: the reason for which a container waits, was refused or is slow."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import HOSTILE, Node, node_with
from support.api_server.certificates import certify
from support.api_server.cluster_api import KubeApi
from support.files import write
from support.ledger.samples import GIB, record
from support.ledger.tenants import Tenants
from support.needed import skip_or_fail
from vcuda_hook.show import live_view
from vcuda_hook.why import kubectl, pod_scheduling, reasons, why
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, instance_records, unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import SUSPENDED, WAITING, Suspension

POD = {"uid": "u", "namespace": "ml", "name": "train-0", "container": "main", "sandbox_id": "s"}
S = 1_000_000_000


class Sampled(Node):
    """meanwhile: called between the two samples that `vcuda why` takes."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def why(self, capsys: Any, word: str, code: int = 0) -> Any:
        assert self.vcuda("why", word, "--json") == code
        return json.loads(capsys.readouterr().out)


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Sampled:
    node_with(tmp_path / "of-its-own", monkeypatch)
    node = Sampled(str(tmp_path))
    clock = SimpleNamespace(
        sleep=lambda _: node.meanwhile(),
        time=time.time, strftime=time.strftime, localtime=time.localtime,
    )  # fmt: skip
    monkeypatch.setattr(why, "time", clock)
    monkeypatch.setattr(kubectl.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    return node


@pytest.fixture
def tenants(node: Sampled, tmp_path: Any) -> Iterator[Tenants]:
    made = Tenants(str(tmp_path))
    for id in ("box", "neighbour"):
        node.add_record(record(id, shares=[GpuShare("GPU-0", 4 * GIB, 30)]))
    yield made
    made.close()


def kinds(answer: Any) -> list[str]:
    return [reason["kind"] for reason in answer["reasons"]]


@pytest.mark.parametrize(
    ("by", "rotates", "quantum", "bound"),
    [
        ("idle", False, "", ", within 117 s at copies of 2 GiB/s"),  # as docs/suspend.md says
        ("idle", False, "30s", ", within 51 s at copies of 2 GiB/s"),
        ("rotation", True, "30s", ", within 55 s at copies of 2 GiB/s"),
        ("order", False, "", ""),
    ],
)
def test_suspended_container_is_told_how_long_its_next_call_waits(
    node: Sampled, capsys: Any, by: str, rotates: bool, quantum: str, bound: str
) -> None:
    if quantum:
        with open(node.config, "a") as config:
            config.write(f'rotation-quantum = "{quantum}"\n')
    off = Suspension(SUSPENDED, by, time.time(), {"GPU-0": 8 * GIB})
    share = GpuShare("GPU-0", 8 * GIB, 60, rotates=rotates)
    node.add_record(record("sleeps", shares=[share], suspension=off))
    node.add_record(record("there", shares=[share.replaced(rotates=True)]))
    (reason,) = node.why(capsys, "sleeps")["reasons"]
    hint = "its next CUDA call resumes it" if bound else "'vcuda resume' resumes it"
    assert reason["hint"] == hint + bound


def test_container_that_cannot_leave_is_named_to_the_one_that_waits_for_it(
    node: Sampled, capsys: Any
) -> None:
    off = Suspension(WAITING, "idle", time.time(), {"GPU-0": 8 * GIB}, 1.0)
    share = GpuShare("GPU-0", 8 * GIB, 60)
    node.add_record(record("sleeps", shares=[share], suspension=off))
    stays = share.replaced(rotates=True, managed=True)
    node.add_record(record("there", shares=[stays]))
    waits, held = node.why(capsys, "sleeps")["reasons"]
    assert waits["hint"] == "it gets it as soon as containers that do not rotate leave it the room"
    assert held["what"].startswith("there has its room and cannot be suspended: its memory of GPU")


def test_nothing_that_holds_it_up_is_said(node: Sampled, tenants: Tenants, capsys: Any) -> None:
    answer = node.why(capsys, "box")
    assert (answer["id"], answer["status"], answer["scheduling"]) == ("box", "running", None)
    assert answer["reasons"] == [
        {"kind": "none", "what": "nothing that vcuda knows of holds it up", "hint": ""}
    ]
    assert node.vcuda("why", "box") == 0
    head, _, line, *_ = capsys.readouterr().out.splitlines()
    assert head == "box: running; 30 % and 4 GiB of GPU 0, fixed, uses 0 % and 0 B"
    assert line.startswith("none")


@pytest.mark.parametrize(
    ("later", "kind", "what"),
    [
        ((1 * S, 7 * S, 0, 0), "turns", "GPU 0 is held by neighbour; it has 10 % of the time"),
        ((3 * S, 0, 6 * S, 0), "share", "its share of 30 % of GPU 0 is used up"),
        ((9 * S, 0, 0, 4 * S), "gaps", "GPU 0 is idle for 44 % of its turns"),
    ],
)
def test_turns_say_what_a_slow_container_waits_for(
    node: Sampled, tenants: Tenants, capsys: Any, later: Any, kind: str, what: str
) -> None:
    nothing, now = (0, 0, 0, 0), time.monotonic_ns()
    tenants.turns(now - 10 * S, {"box": nothing, "neighbour": nothing})
    node.meanwhile = lambda: tenants.turns(
        time.monotonic_ns() + 10 * S, {"box": later, "neighbour": (8 * S, 0, 0, 0)}
    )
    answer = node.why(capsys, "box")
    assert kinds(answer) == [kind]
    assert what in answer["reasons"][0]["what"]


def test_refused_allocations_name_the_limit_and_its_change(
    node: Sampled, tenants: Tenants, capsys: Any
) -> None:
    tenants.uses("box", held=3 * GIB, refusals=7)
    (reason,) = node.why(capsys, "box")["reasons"]
    assert reason == {
        "kind": "memory",
        "what": "7 allocations were refused at its limit of 4 GiB on GPU 0; it has 3 GiB",
        "hint": "'vcuda limit box --memory SIZE'",
    }
    tenants.uses("box", held=4 * GIB - 1, refusals=0)
    (reason,) = node.why(capsys, "box")["reasons"]
    assert "nearly full" in reason["what"]


@pytest.mark.parametrize("isolation", ["mps", "mig"])
def test_share_that_cannot_be_changed_gets_no_hint_to_change_it(
    node: Sampled, tenants: Tenants, capsys: Any, isolation: str
) -> None:
    node.add_record(record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)], isolation=isolation))
    if isolation == "mig":
        os.makedirs(f"{node.ledger.state_dir}/instances", exist_ok=True)
        held = instance_records.Held("box", "GPU-0", 19, 0, 1, [], "/lib/nvml", "MIG-0")
        instance_records.write(node.ledger.state_dir, held)
    tenants.uses("box", held=4 * GIB - 1)
    (reason,) = node.why(capsys, "box")["reasons"]
    assert reason["hint"] == "stop it, and create it with another share"


@pytest.mark.parametrize(
    ("width", "what"), [(None, "share of 30 % of GPU 0"), (64, "64 multiprocessors of GPU 0")]
)
def test_wait_for_a_static_partition_names_its_multiprocessors(width: Any, what: str) -> None:
    entry = {
        "gpu_name": "0", "gpu_uuid": "GPU-0", "usage": "told", "held_percent": None,
        "waits_for": None, "core_percent": 30, "waited_percent": 99, "isolation": "mps",
        "instance_of": None, "mps": {"multiprocessors": width}, "lost_seconds": None,
        "held_seconds": None, "memory_used_bytes": 0, "memory_bytes": GIB, "refusals": 0,
        "memory_managed": False,
    }  # fmt: skip
    gpu = {"mig_mode": False, "unhealthy": None, "drained": None}
    (reason,) = reasons.of_share("box", entry, None, gpu)
    assert reason.what.startswith(f"its launches wait for its {what} for 99 %")
    assert reason.hint == "stop it, and create it with another share"


def test_managed_memory_is_a_reason_for_slowness(node: Sampled, capsys: Any) -> None:
    node.add_record(record("big", shares=[GpuShare("GPU-0", 4 * GIB, 30, managed=True)]))
    (reason,) = node.why(capsys, "big")["reasons"]
    what = "its memory on GPU 0 is managed: the driver may move it to the slow host"
    assert (reason["kind"], reason["what"]) == ("memory", what)


def test_states_health_and_false_figures_are_reasons(
    node: Sampled, tenants: Tenants, capsys: Any, monkeypatch: Any
) -> None:
    node.runtime.set_state("box", "paused")
    tenants.uses("box", held=1 << 50)
    unhealthy.write(node.ledger.state_dir, {"GPU-0": unhealthy.GpuFault("Xid 79", 79, None)})
    answer = node.why(capsys, "box")
    assert kinds(answer) == ["state", "gpu", "figures"]
    assert "unhealthy: Xid 79" in answer["reasons"][1]["what"]
    lost = Host("", "600.1", "/usr/lib", [])
    monkeypatch.setattr(live_view.host, "load", lambda root, cache: lost)  # type: ignore[attr-defined]
    assert "GPU-0 is not seen on this host" in node.why(capsys, "box")["reasons"][1]["what"]


def test_recent_events_are_reasons_and_old_ones_are_not(
    node: Sampled, tenants: Tenants, capsys: Any, monkeypatch: Any
) -> None:
    real = time.time
    for kind, text, ago in (
        (events.THROTTLED, "old", 7200), (events.OUT_OF_MEMORY, "first", 120),
        (events.OUT_OF_MEMORY, "second", 60), (events.BYPASS_FOUND, "a process", 30),
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(events.time, "time", lambda ago=ago: real() - ago)  # type: ignore[attr-defined]
            events.record(node.ledger.state_dir, "p", kind, "box", text)
    events.record(node.ledger.state_dir, "p", events.BYPASS_FOUND, "box-2", "of another")
    answer = node.why(capsys, "box")
    assert [(r["kind"], r["what"]) for r in answer["reasons"]] == [
        ("out-of-memory", "1m ago: second"),
        ("bypass-found", "30s ago: a process"),
    ]
    assert {event["allocation"] for event in answer["events"]} == {"box"}


def test_a_refused_container_is_explained_by_the_engines_name(
    node: Sampled, tmp_path: Any, capsys: Any
) -> None:
    id = "e" * 64
    path = write(f"{tmp_path}/{id}/config.v2.json", json.dumps({"ID": id, "Name": "/web"}))
    more = events.about(id, {}, {"file": path})
    text = "GPU-0: largest free share is 10 %; ask for less"
    events.record(node.ledger.state_dir, "p", events.REFUSED, id, text, **more)
    answer = node.why(capsys, "web")
    assert (answer["id"], answer["scheduling"]) == (None, None)
    (reason,) = answer["reasons"]
    assert (reason["kind"], reason["what"]) == ("refused", f"it was refused 0s ago: {text}")
    assert node.vcuda("why", "web") == 0
    assert capsys.readouterr().out.startswith("web: holds no share on this host\n\nrefused ")


def test_silence_of_host_and_cluster_is_not_taken_for_an_answer(node: Sampled, capsys: Any) -> None:
    more = events.about("", {"namespace": "ml", "name": "train-0", "container": "main"})
    events.record(node.ledger.state_dir, "p", events.LIMIT_CHANGED, "pod-u.main", "text", **more)
    (reason,) = node.why(capsys, "train-0")["reasons"]
    assert (reason["kind"], reason["what"]) == (
        "unknown",
        "nothing on this host says why, and the cluster's events are unknown: "
        "kubectl is not in PATH",
    )


def test_events_of_two_namespaces_pods_are_an_error_with_both(node: Sampled, capsys: Any) -> None:
    for namespace in ("ml", "web"):
        more = events.about("", {"namespace": namespace, "name": "train-0", "container": "main"})
        key = f"pod-{namespace}.main"
        events.record(node.ledger.state_dir, "p", events.REFUSED, key, "full", **more)
    assert node.vcuda("why", "train-0") == 1
    assert capsys.readouterr().err == (
        "vcuda: train-0: may be ml/train-0, web/train-0; write the namespace too\n"
    )
    assert node.why(capsys, "ml/train-0")["reasons"][0]["kind"] == "refused"


def test_an_unknown_name_is_an_error_that_says_what_was_not_asked(
    node: Sampled, capsys: Any
) -> None:
    assert node.vcuda("why", "cat") == 1
    assert capsys.readouterr().err == (
        "vcuda: cat: no container, event or pod of this name; see 'vcuda ps' and 'vcuda events'; "
        "the cluster's events are unknown: kubectl is not in PATH\n"
    )


def test_several_containers_are_an_error_with_candidates(
    node: Sampled, tenants: Tenants, capsys: Any
) -> None:
    node.add_record(record("box-2"))
    assert node.vcuda("why", "bo") == 1
    assert "may be box-2, box; " in capsys.readouterr().err


def test_hostile_texts_move_no_terminal(node: Sampled, capsys: Any) -> None:
    names = {**POD, "name": HOSTILE}
    node.add_record(record("pod-u.main", container_id="c1", pod=names))
    events.record(node.ledger.state_dir, "p", events.BYPASS_FOUND, "pod-u.main", HOSTILE)
    assert node.vcuda("why", "pod-u.main") == 0
    printed = capsys.readouterr().out
    assert "a?[2Jb?c?d?e?f?g?forged" in printed
    assert all(line.isprintable() for line in printed.split("\n"))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: Any) -> Iterator[KubeApi]:
    """An API server with the events of pod ml/train-0 and of another; kubectl asks there."""
    program = "/usr/bin/kubectl"
    if not os.path.exists(program):
        skip_or_fail("kubectl is not installed")
    monkeypatch.setattr(kubectl.shutil, "which", lambda name: program)  # type: ignore[attr-defined]
    certify(tmp_path, "api")  # kubectl sends its token by TLS only
    api = KubeApi()
    api.trusted = {"certificate-authority": f"{tmp_path}/api.crt"}
    api.start(f"{tmp_path}/api.crt", f"{tmp_path}/api.key")
    monkeypatch.setenv("KUBECONFIG", api.kubeconfig(tmp_path / "kubeconfig"))
    for namespace, pod, reason, at in (
        ("ml", "train-0", "Scheduled", "2026-01-01T00:00:02Z"),
        ("ml", "train-0", "FailedScheduling", "2026-01-01T00:00:01Z"),
        ("ml", "train-1", "Pulled", "2026-01-01T00:00:01Z"),
    ):
        api.recorded_events[f"/api/v1/namespaces/{namespace}/events/{pod}.{reason}"] = {
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": pod},
            "lastTimestamp": at,
            "type": "Normal",
            "reason": reason,
            "message": f"of {pod}",
            "source": {"component": "kube-scheduler"},
        }
    yield api
    api.stop()


@pytest.mark.parametrize("word", ["ml/train-0", "train-0", "ml/train-0/main"])
def test_a_pod_that_waits_is_explained_by_the_clusters_events(
    node: Sampled, api: KubeApi, capsys: Any, word: str
) -> None:
    scheduling = node.why(capsys, word)["scheduling"]
    assert scheduling["unknown"] is None
    assert [event["reason"] for event in scheduling["events"]] == ["FailedScheduling", "Scheduled"]
    assert scheduling["events"][0]["source"] == "kube-scheduler"
    assert node.vcuda("why", word) == 0
    assert "kube-scheduler  FailedScheduling: of train-0" in capsys.readouterr().out


def test_pods_of_one_name_in_two_namespaces_are_not_mixed(
    node: Sampled, api: KubeApi, capsys: Any
) -> None:
    api.recorded_events["/api/v1/namespaces/web/events/train-0.Pulled"] = {
        "involvedObject": {"kind": "Pod", "namespace": "web", "name": "train-0"},
        "reason": "Pulled",
    }
    assert node.vcuda("why", "train-0") == 1
    assert capsys.readouterr().err.endswith(
        "the cluster's events are unknown: pods of this name are in ml, web; write NAMESPACE/POD\n"
    )
    assert len(node.why(capsys, "ml/train-0")["scheduling"]["events"]) == 2


def test_a_pod_with_a_share_has_the_clusters_events_too(
    node: Sampled, api: KubeApi, capsys: Any
) -> None:
    node.add_record(record("pod-u.main", container_id="c1", pod=POD))
    assert len(node.why(capsys, "train-0")["scheduling"]["events"]) == 2
    api.stop()
    unknown = node.why(capsys, "train-0")["scheduling"]["unknown"]
    assert unknown.startswith("kubectl: ")
    assert node.vcuda("why", "train-0") == 0
    assert "the cluster's events are unknown: kubectl: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "unknown"),
    [
        ("echo '{\"items\": 5}'", "kubectl gave no list of events"),
        ("echo", "kubectl gave no list of events"),
        ("exec sleep 60", "kubectl gave no answer in 1 s"),
        ("echo no >&2; exit 1", "kubectl: no"),
    ],
)
def test_a_kubectl_without_an_answer_is_named(
    tmp_path: Path, monkeypatch: Any, script: str, unknown: str
) -> None:
    path = write(f"{tmp_path}/kubectl", f"#!/bin/sh\n{script}\n")
    os.chmod(path, stat.S_IRWXU)
    monkeypatch.setattr(kubectl.shutil, "which", lambda name: path)  # type: ignore[attr-defined]
    monkeypatch.setattr(kubectl, "SECONDS", 1)
    monkeypatch.setenv("KUBECONFIG", "any")
    assert pod_scheduling.ask("ml", "train-0").unknown == unknown
    assert pod_scheduling.ask("ml", "a,b=c").unknown == "not the name of a pod"


def test_a_kubectl_without_a_kubeconfig_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: Any
) -> None:
    program = write(f"{tmp_path}/kubectl", "#!/bin/sh\necho localhost:8080 refused >&2; exit 1\n")
    os.chmod(program, stat.S_IRWXU)
    monkeypatch.setattr(kubectl.shutil, "which", lambda name: program)  # type: ignore[attr-defined]
    monkeypatch.setenv("HOME", str(tmp_path))
    for word in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(word, raising=False)
    assert pod_scheduling.ask("ml", "train-0").unknown == (
        f"kubectl has no kubeconfig: neither KUBECONFIG nor {tmp_path}/.kube/config; "
        "type KUBECONFIG=FILE before vcuda, with sudo after sudo"
    )
    (tmp_path / ".kube").mkdir()
    write(f"{tmp_path}/.kube/config", "{}")
    assert pod_scheduling.ask("ml", "train-0").unknown == "kubectl: localhost:8080 refused"


def answered(monkeypatch: Any, **answers: Any) -> None:
    """kubectl's answers by the last part of the path, before its query."""

    def raw(path: str) -> bytes:
        return json.dumps(answers[path.partition("?")[0].rpartition("/")[2]]).encode()

    monkeypatch.setattr(kubectl, "raw", raw)


def test_pod_that_no_scheduler_has_seen_is_told_its_schedulers_name(
    node: Sampled, capsys: Any, monkeypatch: Any
) -> None:
    pod = {"spec": {"schedulerName": "vcuda-scheduler"}}
    answered(monkeypatch, events={"items": []}, train=pod)
    (reason,) = node.why(capsys, "ml/train")["reasons"]
    assert (reason["kind"], "schedulerName is vcuda-scheduler" in reason["what"]) == (
        "pending",
        True,
    )
    pod["spec"]["nodeName"] = "a"
    assert node.vcuda("why", "ml/train") == 1
    assert "no container, event or pod of this name" in capsys.readouterr().err


def test_user_without_root_gets_the_clusters_reasons_and_a_hint(
    node: Sampled, capsys: Any, monkeypatch: Any
) -> None:
    def closed(_: Ledger) -> Any:
        raise VcudaError("cannot be read: Permission denied", "/run/vcuda", "run it as root")

    monkeypatch.setattr(Ledger, "read", closed)
    monkeypatch.setattr(why.os, "geteuid", lambda: 1000)  # type: ignore[attr-defined]
    about = {"namespace": "ml", "name": "train", "uid": "u"}
    refusal = {"reason": "FailedScheduling", "message": "no", "type": "Warning"}
    answered(monkeypatch, events={"items": [{"involvedObject": about, **refusal}]})
    pending, unknown = node.why(capsys, "ml/train")["reasons"]
    assert (pending["kind"], unknown["hint"]) == ("pending", "run it as root")
    answered(monkeypatch, events={"items": []}, train={})
    for verb in ("why", "ps"):
        assert node.vcuda(verb, *["ml/train"][: verb == "why"]) == 1
        assert "Permission denied; run it as root" in capsys.readouterr().err
