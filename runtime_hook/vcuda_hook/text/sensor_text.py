"""A GPU's sensors as one line, as the agent's page and `vcuda top` show it: pure."""

from __future__ import annotations

from collections.abc import Mapping

from . import table


def of(sensors: Mapping[str, float | None]) -> str:
    """Such as "41 °C, 120 of 350 W, 1,980 MHz, PCIe out 1.2 GiB/s in 3 MiB/s"; "": none is known.

    sensors: by key, as the agent's /usage has them; null where NVML has no figure.
    """
    heat, power, most = (
        sensors.get(key) for key in ("temperature_celsius", "power_watts", "power_limit_watts")
    )
    clock = sensors.get("sm_clock_hertz")
    sent, received = (sensors.get(f"pcie_{way}_bytes_per_second") for way in ("sent", "received"))
    parts = [] if heat is None else [f"{heat:.0f} °C"]
    if power is not None:
        parts.append(f"{power:.0f} W" if most is None else f"{power:.0f} of {most:.0f} W")
    if clock is not None:
        parts.append(f"{clock / 1e6:,.0f} MHz")
    if sent is not None and received is not None:
        parts.append(f"PCIe out {table.size(int(sent))}/s in {table.size(int(received))}/s")
    return ", ".join(parts)
