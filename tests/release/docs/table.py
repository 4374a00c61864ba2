"""How each page's commands are run, and the commands that are not run.

A command is named by its text, without its comment and its spaces narrowed to one. An entry that no
page has fails its test.
"""

from __future__ import annotations

from dataclasses import dataclass

from release.docs.page_machine import CHECKOUT, IMAGE, PACKAGES, REGISTRY


@dataclass(frozen=True)
class Page:
    """needs: see page_machine.prepared. folder: the working directory. elsewhere: the test that runs the page."""

    needs: tuple[str, ...] = ()
    folder: str = CHECKOUT
    elsewhere: str = ""


@dataclass(frozen=True)
class How:
    """exit: what is right here. before: what its reader has done. instead: what is run for it.

    by_root: in a user's place. goes_on: it is interrupted after two seconds, on a terminal of its
    own.
    """

    exit: int = 0
    before: str = ""
    instead: str = ""
    by_root: bool = False
    goes_on: bool = False


LIVING = (
    "vcuda run --name {0} --core 30 --memory 4GiB -- sleep 600 &"
    " timeout 60 sh -c 'until vcuda inspect {0} >/dev/null 2>&1; do sleep 0.1; done'"
)
# A container at its memory limit, which it has met once.
AT_ITS_LIMIT = (
    "vcuda inspect train >/dev/null 2>&1 || {"
    " vcuda run --name train --core 30 --memory 1GiB -- sh -c '/usr/lib/vcuda/softgpu/vcuda-workload"
    " hold --bytes 2GiB --seconds 1; sleep 600' >/dev/null 2>&1 &"
    " timeout 60 sh -c 'until vcuda ps --json | grep -q refusals.:.1; do sleep 0.1; done'; }"
)
# A container of which the agent has samples.
ADVISED = (
    "PYTHONPATH=oci:runtime_hook python3 tests/release/docs/sample_demands.py /run/vcuda; "
    "vcuda inspect notebook >/dev/null 2>&1 || { " + LIVING.format("notebook") + "; }"
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
INSTALL = "helm install vcuda packaging/chart --namespace vcuda --set registry=registry.example"
HOST = ("checkout", "installed", "gpus")
# A host that has a GPU, and nothing of vcuda yet.
BARE = ("checkout", "softgpu", "gpus")
# What pages leave to their reader.
WORDS = {"IMAGE": IMAGE, "REGISTRY": REGISTRY, "NODE": "node-1"}

# Pages with commands.
PAGES = {
    "CONTRIBUTING.md": Page(),
    "bench/hardware.md": Page(),
    "README.md": Page((*BARE, "docker", "podman")),
    "docs/advise.md": Page(HOST),
    "docs/bench.md": Page(),
    "docs/cli.md": Page((*HOST, "podman")),
    "docs/cluster-page.md": Page(),
    "docs/doctor.md": Page(HOST, PACKAGES),
    "docs/fences.md": Page(HOST),
    "docs/install.md": Page(elsewhere="tests/release/packages/install/test_install_page.py"),
    "docs/kubernetes.md": Page((*HOST, "images", "cluster")),
    "docs/migrate-from-gpu-manager.md": Page((*BARE, "cluster"), PACKAGES),
    "docs/migrate-from-hami.md": Page((*BARE, "cluster"), PACKAGES),
    "docs/migrate-from-nvidia.md": Page((*BARE, "docker"), PACKAGES),
    "docs/node-agent.md": Page((*HOST, "cluster")),
    "docs/operations.md": Page((*HOST, "cluster"), PACKAGES),
    "docs/request.md": Page((*HOST, "podman")),
    "docs/scheduler.md": Page(("checkout", "installed", "cluster"), PACKAGES),
    "docs/softgpu.md": Page(("checkout", "installed")),
    "docs/start-docker.md": Page(("checkout", "docker")),
    "docs/start-kubernetes.md": Page((*BARE, "images", "cluster"), PACKAGES),
    "docs/start-podman.md": Page(("checkout", "podman")),
    "docs/suspend.md": Page(HOST),
    "docs/tutorial-ci.md": Page((*HOST, "docker")),
    "docs/tutorial-jupyterhub.md": Page(HOST),
    "docs/tutorial-pytorch.md": Page((*HOST, "docker")),
    "docs/troubleshooting.md": Page((*HOST, "docker")),
}

# No user of this machine has more than one id, which images take.
IMAGES = (
    "podman build --file packaging/Containerfile --target node-agent"
    " --tag REGISTRY/vcuda-node-agent:0.1.0 .",
    "podman build --file packaging/Containerfile --target scheduler-extender"
    " --tag REGISTRY/vcuda-scheduler-extender:0.1.0 .",
    "podman push REGISTRY/vcuda-node-agent:0.1.0",
    "podman push REGISTRY/vcuda-scheduler-extender:0.1.0",
)
# Of both architectures. No emulator runs on this machine, so here of its own.
MANIFESTS = tuple(
    f"podman build --platform linux/amd64,linux/arm64 --manifest REGISTRY/vcuda-{name}:0.1.0"
    f" --file packaging/Containerfile --target {name} ."
    for name in ("node-agent", "scheduler-extender")
)
PUSHES = tuple(
    f"podman manifest push --all REGISTRY/vcuda-{name}:0.1.0 docker://REGISTRY/vcuda-{name}:0.1.0"
    for name in ("node-agent", "scheduler-extender")
)
# Commands that are run, and not just so.
# Docker reads its file a moment after systemctl has returned; a reader's next command comes later.
RELOADS = ("systemctl reload docker", "vcuda configure docker && systemctl reload docker")
RELOADED = "timeout 60 sh -c 'until docker info | grep -q Runtimes:.*vcuda; do sleep 0.1; done'"
RUN = {
    **dict.fromkeys((*IMAGES, *PUSHES), How(by_root=True)),
    **{line: How(instead=f"{line} && {RELOADED}") for line in RELOADS},
    **{line: How(by_root=True, instead=line.replace(",linux/arm64", "")) for line in MANIFESTS},
    "vcuda limit run-3f2a --memory 8GiB": How(before=LIVING.format("run-3f2a")),
    "vcuda limit pod-7c1e --policy elastic --core-limit 80 --dry-run": How(
        before=LIVING.format("pod-7c1e")
    ),
    "vcuda advise": How(before=ADVISED),
    "vcuda advise notebook": How(before=ADVISED),
    "vcuda advise notebook --apply --dry-run": How(before=ADVISED),
    "vcuda advise notebook --apply": How(before=ADVISED),
    "vcuda run --name notebook --core 25 --memory 4GiB --policy elastic --idle-suspend 2s --"
    " /usr/lib/vcuda/softgpu/vcuda-workload notebook --bytes 2GiB --seconds 12 --every-ms 8000": How(
        before="mkdir /kubelet && vcuda-node-agent --kubelet-dir /kubelet >/dev/null 2>&1 &"
    ),
    "vcuda suspend notebook": How(before=LIVING.format("notebook")),
    "vcuda resume notebook --timeout 60": How(before="vcuda inspect notebook >/dev/null"),
    "vcuda move notebook --gpu 1": How(before="vcuda inspect notebook >/dev/null"),
    "vcuda resume notebook --gpu 0 --timeout 60": How(before="vcuda suspend notebook"),
    "vcuda suspend run-3f2a": How(before=LIVING.format("run-3f2a")),
    "vcuda inspect run-3f2a": How(before=LIVING.format("run-3f2a")),
    "vcuda why run-3f2a": How(before=LIVING.format("run-3f2a")),
    "vcuda inspect run-77aa": How(before=LIVING.format("run-77aa")),
    "vcuda why train": How(before=AT_ITS_LIMIT),
    "vcuda limit train --memory 10GiB --core 60": How(before="vcuda inspect train >/dev/null"),
    "vcuda run --core 30 --memory 100GiB -- nvidia-smi": How(exit=1),
    "vcuda ps --wide": How(exit=1),
    "vcuda gpus --wide": How(before="softgpu fail /run/softgpu --lost 1"),
    "vcuda run --core 30 -- true": How(
        exit=1, before="""echo 'polcy = "elastic"' >>/etc/vcuda/config.toml"""
    ),
    "vcuda top": How(goes_on=True),
    "vcuda events --follow": How(goes_on=True),
    "vcuda events run-3f2a --follow": How(goes_on=True),
    "vcuda serve": How(goes_on=True),
    # Debian 12's runc is one that it warns of.
    "vcuda doctor": How(exit=1),
    "vcuda doctor --json": How(exit=1),
    "vcuda doctor --json >doctor.json": How(exit=1),
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
        before="echo 'print(1)' >train.py"
    ),
    "vcuda simulate trace.csv --nodes 50x8:H100:80GiB --nodes 40x2:T4:16GiB --quota gpuquota.json --json": How(
        before=TRACE
    ),
    "vcuda simulate trace.csv --nodes 100x8:H100:80GiB:4@public --quota gpuquota.json --json": How(
        before=TRACE
    ),
    "softgpu time /run/softgpu --json": How(before="softgpu create /run/softgpu --force --gpus 2"),
    "softgpu fail /run/softgpu --call cuMemAlloc_v2 --nth 3 --error CUDA_ERROR_OUT_OF_MEMORY": How(
        before="softgpu create /run/softgpu --force --gpus 2"
    ),
    # A tenth of the page's nodes, and with them of its pods.
    "vcuda simulate --generate fgd --nodes 55x8:G2:24GiB --nodes 42x2:T4:16GiB": How(
        instead="vcuda simulate --generate fgd --nodes 5x8:G2:24GiB --nodes 4x2:T4:16GiB"
    ),
    "vcuda simulate openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --policy binpack --policy fgd": How(
        before=OPENB
    ),
    "vcuda-scheduler-extender --kubeconfig ~/.kube/config"
    " --tls-client-ca /etc/vcuda-tls/ca.crt"
    " --tls-cert /etc/vcuda-tls/server.crt --tls-key /etc/vcuda-tls/server.key": How(goes_on=True),
    "helm upgrade vcuda packaging/chart --namespace vcuda --reuse-values": How(
        before=f"kubectl apply -f packaging/kubernetes/namespace.yaml && {INSTALL}"
    ),
    # On the page it is in place of what Helm has done before.
    "kubectl apply -k gpu": How(
        before="helm uninstall vcuda --namespace vcuda && mkdir gpu && "
        "awk '/^```/ {on = 0} /^# gpu.kustomization/ {on = 1} on' docs/kubernetes.md "
        ">gpu/kustomization.yaml"
    ),
    "kubectl apply -f models.yaml": How(
        before="awk '/^```/ {on = /yaml/; next} on' docs/start-kubernetes.md >models.yaml"
    ),
    "kubectl label node NODE nvidia-device-enable-": How(
        before="kubectl label node node-1 nvidia-device-enable=enable --overwrite"
    ),
    "kubectl label node NODE gpu-": How(before="kubectl label node node-1 gpu=on"),
}

BY_CI = ".ci/run does it"
GPU = "takes a GPU; tests/gpu/test_questions.py asks the software one the same"
HOURS = "takes up to hours; tests/release/test_short_runs.py makes a short one of each"
RACES = "takes hours; tests/engines/hostile/test_hostile_races.py is a short one"
FUZZ = "takes a long run's finds; tests/release/fuzz/test_fuzz.py runs it a second long"
SIGNED = "takes the releasing person's key; tests/release/packages/test_release.py has one"
GROUPS = (
    "start",
    "ctr",
    "agent",
    "dra",
    "scrape",
    "shim",
    "crowd",
    "scheduler",
    "shares",
    "suspend",
    "advice",
    "fences",
)
BENCHES = ["make bench", *(f"make bench ONLY={group}" for group in GROUPS)]

NO_CDI = "Debian's Docker knows no CDI; tests/engines/hooks/test_cdi.py does so with Podman"
NO_BUILDKIT = "Debian's Docker has no BuildKit with CDI; tests/engines/images/test_mount_points.py"
BUILDS = "tests/engines/images/test_mount_points.py builds by Podman"
RUNS_A_POD = "runs a pod; tests/engines/pods/test_chart_check.py runs its command"
PYTORCH = "needs PyTorch and a GPU; the page runs the same share with another image"
CLAIMS_RUN = "needs a cluster with DRA; tests/cluster/claims/test_claims.py has one"
PODS_RUN = "needs pods that run; tests/cluster/test_start_page.py runs them"
VIEWED = "needs an extender that runs; tests/contract/scheduler/test_cluster_page.py asks one"
BY_LAYOUT = "needs a GPU in MIG mode; tests/contract/host/driver/test_mig_layout.py does so"
BY_RUNC = "needs a daemon beside it; tests/engines/fences/test_mps.py does so with Docker and runc"
NOT_HERE = {
    "vcuda mig-layout config.yaml all-1g.10gb --dry-run": BY_LAYOUT,
    "docker run --runtime=vcuda -e VCUDA_CORE=30 -e VCUDA_MEMORY=5GiB -e VCUDA_ISOLATION=mps IMAGE"
    " nvidia-smi": BY_RUNC,
    "docker run --detach --name train --runtime=vcuda -e VCUDA_CORE=50 -e VCUDA_MEMORY=8GiB"
    ' --shm-size 8g --volume "$PWD:/work" pytorch/pytorch python /work/train.py': PYTORCH,
    "kubectl --namespace vcuda port-forward service/vcuda-cluster-page 8443:443": VIEWED,
    "kubectl --namespace team create token viewer": VIEWED,
    'curl --insecure --header "Authorization: Bearer $TOKEN"'
    " 'https://localhost:8443/?namespace=team'": VIEWED,
    "helm upgrade vcuda packaging/chart --namespace vcuda --reuse-values"
    " --set scheduler.page.enabled=true": VIEWED,
    "kubectl --namespace vcuda rollout status deployment/vcuda-scheduler-extender": VIEWED,
    "kubectl create namespace team": VIEWED,
    "kubectl --namespace team create serviceaccount viewer": VIEWED,
    "helm upgrade vcuda packaging/chart --namespace vcuda --reuse-values"
    " --set settings.gpu-offer=dra": CLAIMS_RUN,
    "kubectl get resourceslices": CLAIMS_RUN,
    "kubectl get resourceclaims --all-namespaces -o custom-columns="
    "'POD:.status.reservedFor[*].name,GPU:.status.allocation.devices.results[*].device,"
    "CORES:.status.allocation.devices.results[*].consumedCapacity.cores,"
    "MEMORY:.status.allocation.devices.results[*].consumedCapacity.memory'": CLAIMS_RUN,
    "helm test vcuda --namespace vcuda": RUNS_A_POD,
    "kubectl wait --for=condition=Ready --timeout=120s pod/model-a pod/model-b": PODS_RUN,
    "kubectl exec model-b -- nvidia-smi": PODS_RUN,
    "podman --runtime=vcuda build --build-arg VCUDA_CORE=30 --build-arg VCUDA_MEMORY=5GiB .": BUILDS,
    "docker buildx build --allow device=vcuda.io/gpu=train .": NO_BUILDKIT,
    "git clone REPOSITORY vcuda && cd vcuda": "CI begins with a fresh clone",
    "git clone REPOSITORY vcuda && cd vcuda && make packages": "CI begins with a fresh clone",
    "make demo": BY_CI,
    "make test": BY_CI,
    "make unit": BY_CI + " in make test",
    "make packages": BY_CI,
    "make gpu": GPU,
    "make gpu PYTHON=/path/to/python": GPU,
    'make gpu ARGS="--only clock.slice --only share.two --seconds 10"': GPU,
    "make gpu ARGS=--json": GPU,
    "make gpu SOFTGPU_ROOT=/run/softgpu LD_LIBRARY_PATH=/run/softgpu/usr/lib/x86_64-linux-gnu": GPU,
    "make build": BY_CI,
    "make check": BY_CI,
    'make test ARGS="tests/unit -k ledger"': BY_CI + ", all of it",
    "make pages": "tests/release/docs/test_made_pages.py makes what it makes",
    "make docs": "tests/release/docs/test_site.py does so",
    "make manifests": "tests/contract/chart/test_plain_manifests.py does so",
    "make release": "tests/release/packages/test_release.py does so",
    "make soak": HOURS,
    "make soak-pods": HOURS,
    "make soak-races": RACES,
    **dict.fromkeys(BENCHES, HOURS),
    "build/venv/bin/python -m tests.bench --only shares --model default --row '30/70' --every": HOURS,
    "make fuzz SECONDS=600": FUZZ,
    "make fuzz SECONDS=600 ONLY=record": FUZZ,
    "build/venv/bin/python -m tests.release.fuzz --show build/fuzz/record-crash-1 record": FUZZ,
    "build/fuzz/pages build/fuzz/pages-crash-1": FUZZ,
    "build/fuzz/pages -merge=1 -set_cover_merge=1 -use_counters=0 new build/fuzz/found-pages"
    " tests/shim/fuzz/corpus": FUZZ,
    "git tag -s v1.2.3 -F build/release/NOTES.md --cleanup=verbatim": SIGNED,
    "git tag -v v1.2.3": SIGNED,
    "gpg --armor --detach-sign build/release/SHA256SUMS": SIGNED,
    "rpm -U --replacepkgs build/packages/vcuda-runtime-*.x86_64.rpm": "this is Debian;"
    " tests/release/packages/install/test_install_page.py does so",
    "vcuda demo --softgpu-dir build/softgpu --json-out build/demo.json": BY_CI + " as make demo",
    "docker run --rm --device vcuda.io/gpu=train IMAGE nvidia-smi": NO_CDI,
    """docker run --rm --gpus 'driver=cdi,"device=vcuda.io/gpu=train"' IMAGE nvidia-smi""": NO_CDI,
    """docker run --rm --gpus '"device=train"' IMAGE nvidia-smi""": NO_CDI,
}

A_NAME = "tells of the command, not to type it"
A_HINT = "a hint, for a host that lacks it"
THEIRS = "what readers come from"
# Commands of the pages' text that stand in no block.
IN_PROSE = {
    "ctr run": A_NAME,
    "docker commit": A_NAME,
    "podman build --device vcuda.io/gpu=train": "Debian's Podman knows no CDI devices in builds",
    "ctr run --rm": A_NAME,
    "git grep": A_NAME,
    "kubectl describe resourceclaim": A_NAME,
    "kubectl describe pod": A_NAME,
    "kubectl get -o json": A_NAME,
    "kubectl patch": A_NAME,
    "python3 -I -S": A_NAME,
    "runc run": A_NAME,
    "runc update": A_NAME,
    "systemctl daemon-reload": A_NAME,
    "make pictures": A_NAME,
    "make prepare": A_NAME,
    "make cluster": "needs a Kubernetes, which tests/cluster is given",
    "mount -o remount,bind,rw": "an attack; in its container no page runs commands",
    "vcuda configure containerd --default --config /etc/containerd/conf.d/99-vcuda.toml": A_HINT,
    "docker run --gpus all": THEIRS,
    "helm uninstall hami": THEIRS,
    "nvidia-ctk cdi generate": THEIRS,
    "nvidia-ctk runtime configure --runtime=docker": THEIRS,
    "make arm64": "make packages does so",
    "make install": "tests/release/packages/test_contents.py does so",
    "modprobe nvidia": "takes the driver's modules",
    "nvidia-modprobe -c 0 -u": "takes the driver's modules",
}
