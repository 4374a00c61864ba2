"""Paths of a real Kubernetes' programs, in the folder that the environment names."""

from __future__ import annotations

import os

import pytest

# As envtest calls it.
VARIABLE = "KUBEBUILDER_ASSETS"
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
NOT_GIVEN = f"no Kubernetes given: set {VARIABLE} to a folder with {', '.join(PROGRAMS)}"


def given() -> str:
    return os.environ.get(VARIABLE, "")


def folder() -> str:
    """The folder with PROGRAMS; fail where it lacks one of them."""
    absent = [name for name in PROGRAMS if not os.access(os.path.join(given(), name), os.X_OK)]
    if absent:
        pytest.fail(f"{VARIABLE}={given()}: {', '.join(absent)} not found there")
    return os.path.abspath(given())
