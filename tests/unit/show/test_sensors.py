"""A GPU's sensors: read from NVML, shown as one line, read again from the agent's page."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from vcuda_hook.show import agent_client
from vcuda_hook.text import table
from vcuda_plugin.agent.gpus import sensors

NOT_SUPPORTED = 3


class Nvml:
    """An NVML with these answers; a function that it lacks is as in an older driver."""

    def __init__(self, **answers: int) -> None:
        self._answers = answers
        if "clock" in answers:
            self.nvmlDeviceGetClockInfo = self._clock
        if "pcie" in answers:
            self.nvmlDeviceGetPcieThroughput = self._pcie

    def nvmlDeviceGetTemperature(self, device: Any, sensor: Any, answer: Any) -> int:
        answer._obj.value = self._answers["celsius"]
        return 0

    def nvmlDeviceGetPowerUsage(self, device: Any, answer: Any) -> int:
        answer._obj.value = 7
        return NOT_SUPPORTED

    def _clock(self, device: Any, kind: Any, answer: Any) -> int:
        answer._obj.value = self._answers["clock"] * kind.value
        return 0

    def _pcie(self, device: Any, way: Any, answer: Any) -> int:
        answer._obj.value = self._answers["pcie"] + way.value
        return 0

    def nvmlDeviceGetFieldValues(self, device: Any, count: int, values: Any) -> int:
        assert [value.field for value in values] == [138, 139]
        assert {value.scope for value in values} == {0xFFFFFFFF}
        for value in values:
            value.status = 0 if "links" in self._answers else NOT_SUPPORTED
            value.type, value.value = 3, self._answers.get("links", 9)
        return 0


def test_what_nvml_tells_is_read_in_our_units_and_the_rest_is_absent() -> None:
    assert sensors.read(Nvml(celsius=41), 1) == {"temperature_celsius": 41}
    found = sensors.read(Nvml(celsius=41, clock=1000, pcie=5, links=2), 1)
    assert found == {
        "temperature_celsius": 41,
        "sm_clock_hertz": 1e9,
        "memory_clock_hertz": 2e9,
        "pcie_sent_bytes_per_second": 5000,
        "pcie_received_bytes_per_second": 6000,
        "nvlink_sent_bytes": 2048,
        "nvlink_received_bytes": 2048,
    }
    assert found.keys() <= set(sensors.KEYS)


def test_the_field_value_has_nvmls_layout() -> None:
    """Source: nvml.h, nvmlFieldValue_t."""
    value = sensors._Value
    offsets = [getattr(value, field[0]).offset for field in value._fields_]
    assert (ctypes.sizeof(value), offsets) == (40, [0, 4, 8, 16, 24, 28, 32])


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({}, ""),
        (dict.fromkeys(sensors.KEYS), ""),
        ({"temperature_celsius": 41.0}, "41 °C"),
        ({"power_watts": 120.4}, "120 W"),
        (
            {
                "temperature_celsius": 41.0, "power_watts": 120.4, "power_limit_watts": 350.0,
                "sm_clock_hertz": 1.98e9, "pcie_sent_bytes_per_second": 3 << 20,
                "pcie_received_bytes_per_second": 1.5 * (1 << 30),
            },
            "41 °C, 120 of 350 W, 1,980 MHz, PCIe out 3 MiB/s in 1.5 GiB/s",
        ),
    ],
)  # fmt: skip
def test_a_line_has_what_is_known(figures: dict[str, float | None], text: str) -> None:
    assert table.sensors(figures) == text


def test_the_agents_answer_is_read_by_gpu_and_other_texts_are_not() -> None:
    gpus = [{"uuid": "GPU-0", "sensors": {"power_watts": 5, "x": None, "y": "\x1b", "z": -1}}, 7]
    assert agent_client.sensors_of({"gpus": gpus}) == {"GPU-0": {"power_watts": 5.0}}
    shapes: list[Any] = [None, [], {}, {"gpus": 5}, {"gpus": [{"sensors": 5}]}]
    for odd in shapes:
        assert agent_client.sensors_of(odd) == {}
