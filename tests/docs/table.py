"""How each page's commands are run, and which are not.

A command is named by its text, without its comment and its spaces narrowed to one. An entry that no
page has fails its test.
"""

from __future__ import annotations

from dataclasses import dataclass

from docs.ground import CHECKOUT, IMAGE, PACKAGES


@dataclass(frozen=True)
class Page:
    """needs: see ground.prepare. folder: where its reader is. elsewhere: the test that runs it."""

    needs: tuple[str, ...] = ()
    folder: str = CHECKOUT
    elsewhere: str = ""


@dataclass(frozen=True)
class How:
    """exit: what is right here. before: what its reader has done. instead: what is run for it.

    goes_on: it is interrupted after two seconds, on a terminal of its own.
    """

    exit: int = 0
    before: str = ""
    instead: str = ""
    goes_on: bool = False


LIVING = (
    "vcuda run --name {0} --core 30 --memory 4GiB -- sleep 600 &"
    " timeout 60 sh -c 'until vcuda inspect {0} >/dev/null 2>&1; do sleep 0.1; done'"
)
TRACE = (
    "printf 'name,arrival,duration,core\\na,0,60,30\\n' >trace.csv"
    """ && echo '{"team": {"quota": {"H100": 8}}}' >gpuquota.json"""
)
OPENB = (
    "printf 'name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\\np,1,1,1,500,,LS,Running,0,1,0\\n' >openb_pod_list_default.csv"
    " && printf 'sn,cpu_milli,memory_mib,gpu,model\\nhost-4,1,1,2,P100\\n' >openb_node_list_gpu_node.csv"
)
HOST = ("checkout", "installed", "gpus")
# A host that has a GPU, and nothing of vcuda yet.
BARE = ("checkout", "softgpu", "gpus")
# What pages leave to their reader.
WORDS = {"IMAGE": IMAGE, "REGISTRY": "registry.example", "NODE": "node-1"}

# Pages with commands.
PAGES = {
    "bench/hardware.md": Page(),
    "README.md": Page((*BARE, "docker", "podman")),
    "docs/cli.md": Page((*HOST, "podman")),
    "docs/doctor.md": Page(HOST),
    "docs/install.md": Page(elsewhere="tests/packages/test_install_page.py"),
    "docs/kubernetes.md": Page(HOST),
    "docs/migrate-from-gpu-manager.md": Page(BARE, PACKAGES),
    "docs/migrate-from-hami.md": Page(BARE, PACKAGES),
    "docs/migrate-from-nvidia.md": Page((*BARE, "docker"), PACKAGES),
    "docs/node-agent.md": Page(HOST),
    "docs/operations.md": Page(HOST, PACKAGES),
    "docs/scheduler.md": Page(("checkout", "installed", "cluster"), PACKAGES),
    "docs/softgpu.md": Page(HOST),
    "docs/start-docker.md": Page(("checkout", "docker")),
    "docs/start-kubernetes.md": Page(BARE, PACKAGES),
    "docs/start-podman.md": Page(("checkout", "podman")),
}

# Commands that are run, and not just so.
RUN = {
    "vcuda limit run-3f2a --memory 8GiB": How(before=LIVING.format("run-3f2a")),
    "vcuda limit run-3f2a --memory 8GiB --core 50": How(before=LIVING.format("run-3f2a")),
    "vcuda limit pod-7c1e --policy elastic --core-limit 80 --dry-run": How(
        before=LIVING.format("pod-7c1e")
    ),
    "vcuda top": How(goes_on=True),
    "vcuda events --follow": How(goes_on=True),
    "vcuda events run-3f2a --follow": How(goes_on=True),
    "vcuda serve": How(goes_on=True),
    # Debian 12's runc is one that it warns of.
    "vcuda doctor": How(exit=1),
    "vcuda doctor --json": How(exit=1),
    "vcuda doctor --json >/root/doctor.json": How(exit=1),
    # Refused, and the page says how.
    "docker run --rm --runtime=vcuda -e VCUDA_CORE=30 -e VCUDA_MEMORY=20GiB IMAGE nvidia-smi": How(
        exit=125
    ),
    "podman --runtime=vcuda run --annotation vcuda.io/core=30 --annotation vcuda.io/memory=5GiB IMAGE": How(
        before="vcuda configure podman"
    ),
    "vcuda run --core 150 --gpu 0 --gpu 1 --rootfs ./ubuntu --volume /data:/data:ro -- nvidia-smi": How(
        before="cp -a /mnt/shared/image ubuntu && mkdir /data"
    ),
    "vcuda run --core 50 --bundle ./bundle": How(
        before="mkdir bundle && cp -a /mnt/shared/image bundle/rootfs && cd bundle && runc spec"
        ' && sed -i \'s/"terminal": true/"terminal": false/; s/"sh"/"nvidia-smi"/\' config.json'
    ),
    "vcuda run --core 30 --policy elastic --core-limit 80 -- python3 train.py": How(
        before="echo 'print(1)' >/train.py"
    ),
    "vcuda simulate trace.csv --nodes 50x8:H100:80GiB --nodes 40x2:T4:16GiB --quota gpuquota.json --json": How(
        before=TRACE
    ),
    "vcuda simulate trace.csv --nodes 100x8:H100:80GiB:4@public --quota gpuquota.json --json": How(
        before=TRACE
    ),
    "softgpu fail /run/softgpu --call cuMemAlloc_v2 --nth 3 --error CUDA_ERROR_OUT_OF_MEMORY": How(
        before="softgpu create /run/softgpu --gpus 2"
    ),
    "vcuda simulate openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --policy binpack --policy fgd": How(
        before=OPENB
    ),
    "vcuda-scheduler-extender --kubeconfig ~/.kube/config": How(goes_on=True),
    "helm install vcuda packaging/chart --namespace vcuda --set registry=REGISTRY": How(
        instead=f"cd {CHECKOUT} && helm template vcuda packaging/chart --set registry=REGISTRY"
    ),
}

BY_CI = ".ci/run does it"
NO_CLUSTER = "takes a cluster; tests/chart holds what is applied against the API's schemas"
NO_REGISTRY = "takes a base image; tests/packages/test_containerfile.py does its steps"

NOT_HERE = {
    "git clone <this repository> && cd vcuda": "CI begins with a fresh clone",
    "git clone <this repository> && cd vcuda && make packages": "CI begins with a fresh clone",
    "make demo": BY_CI,
    "make test": BY_CI,
    "make packages": BY_CI,
    "make gpu": "takes a GPU; tests/gpu asks the software one the same",
    "vcuda demo --softgpu-dir build/softgpu --json-out build/demo.json": BY_CI + " as make demo",
    "kubectl label node NODE nvidia-device-enable=enable": NO_CLUSTER,
    "kubectl apply -f packaging/kubernetes/namespace.yaml": NO_CLUSTER,
    "kubectl describe node | grep vcuda": NO_CLUSTER,
    "kubectl describe node NODE": NO_CLUSTER,
    "kubectl --namespace vcuda get pods": NO_CLUSTER,
    "kubectl apply -f train.yaml": NO_CLUSTER,
    "kubectl logs train": NO_CLUSTER,
    "kubectl delete pod train": NO_CLUSTER,
    "kubectl delete -f packaging/kubernetes/namespace.yaml": NO_CLUSTER,
    "kubectl label node NODE nvidia-device-enable-": NO_CLUSTER,
    "kubectl label node NODE vcuda.io/moved=yes": NO_CLUSTER,
    "kubectl label node NODE gpu-": NO_CLUSTER,
    "kubectl annotate node NODE vcuda.io/cordoned-gpus=1": NO_CLUSTER,
    "kubectl cordon NODE": NO_CLUSTER,
    "kubectl uncordon NODE": NO_CLUSTER,
    "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data": NO_CLUSTER,
    "helm uninstall vcuda --namespace vcuda": NO_CLUSTER,
    "podman push REGISTRY/vcuda-node-agent:0.1.0": NO_REGISTRY,
    "podman push REGISTRY/vcuda-scheduler-extender:0.1.0": NO_REGISTRY,
    "kubectl label node foo gaia.tencent.com/gpu-model=M40 gaia.tencent.com/gpu-pool=public": NO_CLUSTER,
    'kubectl -n kube-system create configmap gpuquota --from-literal=gpu_quota=\'{"team": {"quota":'
    ' {"M40": 8, "P100": 0.5}, "pool": ["public"]}}\'': NO_CLUSTER,
    "podman build --file packaging/Containerfile --target node-agent"
    " --tag REGISTRY/vcuda-node-agent:0.1.0 .": NO_REGISTRY,
    "podman build --file packaging/Containerfile --target scheduler-extender"
    " --tag REGISTRY/vcuda-scheduler-extender:0.1.0 .": NO_REGISTRY,
}
