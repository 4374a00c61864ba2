"""Every function of the software GPU, with each argument spoilt, answers as cuda.h documents."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from shim.conftest import DriverRoot
from softgpu.calls.cuda_expected import BEFORE_INIT, CONTEXTUAL, NOT_SUCCESS, expected
from softgpu.calls.cuda_header import FUNCTIONS, implemented
from support.gpu import guest
from support.softgpu.softgpu_host import REPOSITORY, SWITCHED, SoftGpu

WALK = REPOSITORY / "tests" / "softgpu" / "calls" / "cuda_walk.py"
Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> SoftGpu:
    return SoftGpu(tmp_path_factory.mktemp("walk"), *SWITCHED)


@pytest.fixture(scope="module")
def answers(gpu: SoftGpu, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    asked = tmp_path_factory.mktemp("asked") / "functions.json"
    asked.write_text(json.dumps([[f.name, f.parameters] for f in FUNCTIONS.values()]))
    walk = gpu.run(sys.executable, str(WALK), str(asked))
    assert walk.returncode == 0, walk.stderr
    found: Answers = json.loads(walk.stdout)
    return found


def test_every_function_that_is_implemented_is_walked(answers: Answers) -> None:
    assert set(answers) == implemented()


def misuses(answers: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for misuse, answer in answers.items():
        parameter, _, wrong = misuse.partition(" ")
        yield parameter, wrong, answer


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_is_answered_as_cuda_h_says_by(answers: Answers, name: str) -> None:
    function = FUNCTIONS[name]
    kinds = {parameter.name: parameter.type for parameter in function.parameters}
    wrong_answers = {
        f"{parameter} {wrong}": f"{answer}, not {' or '.join(sorted(allowed))}"
        for parameter, wrong, answer in misuses(answers[name])
        if parameter in kinds
        and answer not in (allowed := expected(function, kinds[parameter], parameter, wrong))
    }
    assert wrong_answers == {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_driver_and_the_context_that_are_missing_are_missed_by(
    answers: Answers, name: str
) -> None:
    found = answers[name]
    right = NOT_SUCCESS.get(name, "SUCCESS")
    assert found["right"] == right
    assert found["not-initialised"] == BEFORE_INIT.get(name, "NOT_INITIALIZED")
    # cuda.h's enum gives both to any call: "there is no context bound to the current thread", "the
    # context current to the calling thread has been destroyed".
    if name.startswith(CONTEXTUAL):
        assert found["no-context"] == "INVALID_CONTEXT"
        assert found["context-destroyed"] in ("CONTEXT_IS_DESTROYED", "INVALID_CONTEXT")
    else:
        assert found["no-context"] in (right, "INVALID_CONTEXT")


MISSING_CONTEXT = {"INVALID_CONTEXT", "CONTEXT_IS_DESTROYED"}  # the driver returns either


@pytest.mark.parametrize(
    ("begins", "meter_copies"),
    [("cu", False), (("cuMemcpy", "cuMemset"), True)],
    ids=["every function", "copies where they are metered"],
)
def test_every_wrong_argument_is_answered_in_a_container_as_outside(
    gpu: SoftGpu,
    answers: Answers,
    tmp_path: pathlib.Path,
    begins: str | tuple[str, ...],
    meter_copies: bool,
) -> None:
    asked = tmp_path / "functions.json"
    chosen = [[f.name, f.parameters] for f in FUNCTIONS.values() if f.name.startswith(begins)]
    assert len(chosen) > 40
    asked.write_text(json.dumps(chosen))
    slices = [guest.share(uuid, 4 * guest.GIB) for uuid in DriverRoot(str(gpu.root)).uuids]
    container = guest.Guest(
        str(tmp_path / "guest"), str(gpu.root), slices, meter_copies=meter_copies
    )
    inside: Answers = container.json(guest.PYTHON, str(WALK), str(asked))
    assert set(inside) == {name for name in answers if name.startswith(begins)}
    different = {
        f"{name} {wrong}": f"{inside[name][wrong]}, not {answer}"
        for name in inside
        for wrong, answer in answers[name].items()
        if inside[name][wrong] != answer
        and not (wrong == "context-destroyed" and {answer, inside[name][wrong]} <= MISSING_CONTEXT)
    }
    assert different == {}
