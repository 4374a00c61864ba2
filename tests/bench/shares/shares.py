"""The table of shares: how exactly containers get their part of a GPU's time, and what is lost.

Each row runs in every model of the GPU's clock, in virtual time; the last one, what the keeper
takes of the processors, in real time. The worst of a row's cases counts.
support/shares/judge.py says what is judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.result import Figure
from bench.shares import rows, rows_deaths, rows_false_pages, rows_latency, rows_more
from bench.shares.rows import Judged, Row
from support.shares.judge import MODELS


def all_rows() -> list[Row]:
    return [
        *rows.alone(),
        *rows.pairs(),
        rows.on_streams(),
        *rows.several(),
        rows_more.throughput(),
        rows_more.policies(),
        *rows_more.requests(),
        rows_more.gaps_beside_requests(),
        *rows_latency.requests(),
        rows_latency.always_at_work(),
        *rows_more.longest_waits(),
        *rows_deaths.rows(),
        rows_false_pages.row(),
        rows_more.quiet(),
        rows_more.keeper(),
    ]


def measure(
    say: Callable[[str], None],
    quick: bool = False,
    models: Sequence[str] = (),
    only: Sequence[str] = (),
    every: bool = False,
) -> list[Figure]:
    """quick: a short table, of the default model unless others are named.

    models, only: parts of the names of models and rows. every: tell every case.
    """
    figures = []
    models = models or (["default"] if quick else [])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for model, options in MODELS.items():
            if models and not any(part in model for part in models):
                continue
            for row in all_rows():
                if only and not any(part in row.name for part in only):
                    continue
                found = _row(pool, row, model, options, quick)
                for figure in found:
                    say(_line(figure))
                if every:
                    for name, judged in _last.items():
                        values = ", ".join(f"{key} {value:.2f}" for key, value in judged.items())
                        say(f"    {name}: {values}")
                figures += found
    return figures


_last: dict[str, Judged] = {}


def _row(
    pool: ThreadPoolExecutor, row: Row, model: str, options: Sequence[str], quick: bool
) -> list[Figure]:
    cases = [case for case in row.cases if case.quick or not quick]
    judged = list(pool.map(lambda case: case.run(options), cases))
    _last.clear()
    _last.update({case.name: values for case, values in zip(cases, judged, strict=True)})
    figures = []
    goals = row.elsewhere.get(model, row.goals)
    for what, (goal, unit) in goals.items() if cases else ():
        worst = max(range(len(cases)), key=lambda at: judged[at][what])
        value = judged[worst][what]
        name = f"shares.{row.name}, {what} ({model})"
        figures.append(Figure(name, value, unit, goal, {}, cases[worst].name))
    return figures


def _line(figure: Figure) -> str:
    verdict = "met" if figure.met else "MISS"
    return (
        f"{figure.name.removeprefix('shares.'):56} {figure.value:8.2f} of {figure.goal:g}"
        f" {figure.unit:14} {verdict:4}  {figure.note}"
    )
