"""What kube-scheduler sends an extender, to the byte as encoding/json writes its Go types: a nil
pointer, map or list is null, a field that says omitempty is left out, no type has its name changed.

Source: k8s.io/kube-scheduler, extender/v1, types.go; k8s.io/api, core/v1, types.go.
"""

from __future__ import annotations

POD = (
    b'{"metadata":{"name":"asking","namespace":"default","uid":"uid-asking",'
    b'"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z",'
    b'"annotations":{"vcuda.io/placement":"spread"}},'
    b'"spec":{"containers":[{"name":"main","image":"busybox",'
    b'"resources":{"limits":{"tencent.com/vcuda-core":"30","tencent.com/vcuda-memory":"16"},'
    b'"requests":{"tencent.com/vcuda-core":"30","tencent.com/vcuda-memory":"16"}},'
    b'"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"Always"}],'
    b'"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",'
    b'"securityContext":{},"schedulerName":"default-scheduler","priority":1000},'
    b'"status":{"phase":"Pending","qosClass":"BestEffort"}}'
)
VICTIM = (
    b'{"metadata":{"name":"%b","namespace":"default","uid":"uid-%b","creationTimestamp":null},'
    b'"spec":{"containers":null},"status":{}}'
)
NODE = (
    b'{"metadata":{"name":"a","creationTimestamp":null},"spec":{},'
    b'"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"",'
    b'"systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"",'
    b'"kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}}'
)
# ExtenderArgs for an extender that caches nodes, and for one that does not.
BY_NAME = b'{"Pod":%b,"Nodes":null,"NodeNames":["a","b"]}' % POD
BY_NO_NAME = b'{"Pod":%b,"Nodes":null,"NodeNames":[]}' % POD
BY_NODE = b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (POD, NODE)
BY_NO_NODE = b'{"Pod":%b,"Nodes":{"metadata":{},"items":null},"NodeNames":null}' % POD
NEITHER = b'{"Pod":%b,"Nodes":null,"NodeNames":null}' % POD
BINDING = b'{"PodName":"asking","PodNamespace":"default","PodUID":"uid-asking","Node":"a"}'
# ExtenderPreemptionArgs, likewise.
META_VICTIMS = (
    b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":'
    b'{"a":{"Pods":[{"UID":"uid-q"},{"UID":"uid-r"}],"NumPDBViolations":1},'
    b'"b":{"Pods":[],"NumPDBViolations":0},"c":null}}' % POD
)
VICTIMS = (
    b'{"Pod":%b,"NodeNameToVictims":'
    b'{"a":{"Pods":[%b,%b],"NumPDBViolations":1},"b":{"Pods":null,"NumPDBViolations":0},"c":null},'
    b'"NodeNameToMetaVictims":null}' % (POD, VICTIM % (b"q", b"q"), VICTIM % (b"r", b"r"))
)
NO_VICTIMS = b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":null}' % POD
