"""Which answers to a misuse cuda.h allows a function, by the errors that it lists for it.

Where a list has no code for a kind of misuse, the texts of cuda.h's enum decide: CUDA_ERROR_
INVALID_VALUE is that of any parameter, INVALID_DEVICE that of an ordinal, INVALID_HANDLE that of
"opaque types like ::CUstream and ::CUevent", which many lists leave out.
"""

from __future__ import annotations

from softgpu.calls.cuda_header import Function

HANDLES = {
    "CUfunction", "CUkernel", "CUmodule", "CUlibrary", "CUarray", "CUmipmappedArray",
    "CUmemoryPool", "CUmemGenericAllocationHandle", "CUexternalMemory",
    "CUgraph", "CUgraphNode", "CUgraphExec",
}  # fmt: skip
GRAPHS = {"CUgraph", "CUgraphNode", "CUgraphExec"}

# They answer without the driver: libcudart calls them before cuInit.
BEFORE_INIT = {
    "cuInit": "SUCCESS",
    "cuDriverGetVersion": "INVALID_VALUE",
    "cuGetErrorName": "INVALID_VALUE",
    "cuGetErrorString": "INVALID_VALUE",
    "cuGetProcAddress": "INVALID_VALUE",
    "cuGetProcAddress_v2": "INVALID_VALUE",
    "cuGetExportTable": "INVALID_VALUE",
}

# May be NULL: cuda.h's text says so, or nothing is asked for, or given, then.
OPTIONAL = {
    "cuCtxCreate_v3 paramsArray",
    "cuCtxCreate_v4 ctxCreateParams",
    "cuCtxGetApiVersion ctx",
    "cuCtxGetDevice_v2 ctx",
    "cuCtxGetId ctx",
    "cuCtxGetStreamPriorityRange greatestPriority",
    "cuCtxGetStreamPriorityRange leastPriority",
    "cuCtxPopCurrent_v2 pctx",
    "cuCtxSetCurrent ctx",
    "cuCtxSynchronize_v2 ctx",
    "cuGetProcAddress_v2 symbolStatus",
    "cuGraphGetNodes nodes",
    "cuGraphGetRootNodes rootNodes",
    "cuGraphNodeGetDependentNodes dependentNodes",
    "cuGraphNodeGetDependentNodes_v2 dependentNodes",
    "cuLibraryGetGlobal bytes",
    "cuLibraryGetGlobal dptr",
    "cuMemGetAddressRange_v2 pbase",
    "cuMemGetAddressRange_v2 psize",
    "cuModuleGetGlobal_v2 bytes",
    "cuModuleGetGlobal_v2 dptr",
    # whatever the function
    "args", "dependencies", "dependencies_out", "dependencyData", "edgeData", "edgeData_out",
    "extra", "failIdx", "graph_out", "hStream", "id_out", "jitOptions", "jitOptionsValues",
    "kernelParams", "libraryOptionValues", "libraryOptions", "logBuffer", "numDependencies_out",
    "optionValues", "options", "phErrorNode", "userData",
}  # fmt: skip

# Right arguments that are answered with an error all the same, and why.
NOT_SUCCESS = {
    "cuCheckpointOperationComplete": "INVALID_VALUE",  # no copy to custom storage is under way
    "cuCheckpointProcessCheckpoint": "ILLEGAL_STATE",  # the process is not locked
    "cuCheckpointProcessRestore": "ILLEGAL_STATE",
    "cuCheckpointProcessUnlock": "ILLEGAL_STATE",
    "cuGetExportTable": "NOT_FOUND",  # there are no private tables
    "cuIpcCloseMemHandle": "INVALID_VALUE",  # nothing of another process is open
    "cuIpcOpenEventHandle": "INVALID_VALUE",  # a handle that names no event
    "cuIpcOpenMemHandle": "INVALID_VALUE",
    "cuIpcOpenMemHandle_v2": "INVALID_VALUE",
    "cuMemPoolImportPointer": "INVALID_VALUE",
}

# Answers that no list has, or that the general rule does not give, and why.
OTHERWISE = {
    # "Unlike ::cuPointerGetAttribute, this function will not return an error when the ptr
    # encountered is not a valid CUDA pointer."
    "cuPointerGetAttributes ptr unknown": "SUCCESS",
    # Memory outside of every allocation is the host's here, and is read as it is.
    "cuMemcpy dst unknown": "signal 11",
    "cuMemcpy src unknown": "signal 11",
    "cuMemcpyAsync dst unknown": "signal 11",
    "cuMemcpyAsync src unknown": "signal 11",
    "cuMemcpyWithAttributesAsync dst unknown": "signal 11",
    "cuMemcpyWithAttributesAsync src unknown": "signal 11",
    # "Must not be legacy NULL stream": the only code of their lists that is about an argument.
    "cuMemcpyBatchAsync hStream NULL": "INVALID_VALUE",
    "cuMemcpyBatchAsync_v2 hStream NULL": "INVALID_VALUE",
    "cuMemcpy3DBatchAsync hStream NULL": "INVALID_VALUE",
    "cuMemcpy3DBatchAsync_v2 hStream NULL": "INVALID_VALUE",
    # "Capture may not be initiated if \p stream is CU_STREAM_LEGACY": no code is named; the enum's
    # is "not permitted when the stream is capturing", or "not in a valid state".
    "cuStreamBeginCapture hStream NULL": "STREAM_CAPTURE_UNSUPPORTED",
    "cuStreamBeginCapture_v2 hStream NULL": "STREAM_CAPTURE_UNSUPPORTED",
    "cuStreamBeginCaptureToGraph hStream NULL": "STREAM_CAPTURE_UNSUPPORTED",
    # A default stream, which ends with its context.
    "cuStreamDestroy_v2 hStream NULL": "INVALID_HANDLE",
    "cuStreamEndCapture hStream NULL": "ILLEGAL_STATE",
    "cuStreamUpdateCaptureDependencies hStream NULL": "ILLEGAL_STATE",
    "cuStreamUpdateCaptureDependencies_v2 hStream NULL": "ILLEGAL_STATE",
}

# They work in the current context, by how their names begin.
CONTEXTUAL = (
    "cuArrayCreate", "cuArray3DCreate", "cuCtxGetCacheConfig", "cuCtxGetFlags", "cuCtxGetLimit",
    "cuCtxGetStreamPriorityRange", "cuCtxResetPersistingL2Cache", "cuCtxSetCacheConfig",
    "cuCtxSetFlags", "cuCtxSetLimit", "cuEventCreate", "cuLaunchKernel",
    "cuLaunchCooperativeKernel", "cuLibraryGetModule", "cuLibraryGetGlobal", "cuKernelGetFunction",
    "cuMemAlloc", "cuMemGetInfo", "cuMemHostAlloc", "cuMemHostRegister", "cuMemcpy", "cuMemset",
    "cuMipmappedArrayCreate", "cuModuleLoad", "cuModuleUnload", "cuStreamCreate",
)  # fmt: skip


def first_listed(function: Function, wanted: tuple[str, ...]) -> set[str]:
    """Those of WANTED that are listed; where none is, the first of them."""
    return set(wanted) & function.errors or {wanted[0]}


def expected(function: Function, kind: str, parameter: str, wrong: str) -> set[str]:
    """The answers to FUNCTION with a WRONG PARAMETER of the type KIND."""
    special = OTHERWISE.get(f"{function.name} {parameter} {wrong}")
    if special:
        return {special}
    if wrong == "NULL" and OPTIONAL & {parameter, f"{function.name} {parameter}"}:
        return {NOT_SUCCESS.get(function.name, "SUCCESS")}
    if kind in ("CUstream", "CUevent"):
        return {"INVALID_HANDLE"}
    if kind == "CUcontext":
        listed = {"INVALID_CONTEXT", "CONTEXT_IS_DESTROYED"} & function.errors
        return listed or {"INVALID_VALUE"}
    if kind in GRAPHS:
        return first_listed(function, ("INVALID_VALUE", "INVALID_HANDLE"))
    if kind in HANDLES:
        return first_listed(function, ("INVALID_HANDLE", "INVALID_VALUE"))
    if kind == "CUdevice":
        return {"INVALID_DEVICE"} & function.errors or {"INVALID_VALUE"}
    if kind == "CUdeviceptr":
        return first_listed(function, ("INVALID_VALUE", "NOT_FOUND"))
    if kind == "CUlimit":
        return first_listed(function, ("UNSUPPORTED_LIMIT", "INVALID_VALUE"))
    return {"INVALID_VALUE"}
