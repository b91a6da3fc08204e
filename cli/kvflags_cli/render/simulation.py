# SPDX-License-Identifier: Apache-2.0
"""The view of a simulation: how many rollouts ended in each verdict, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.numbers import ABSENT, amount, count, percent
from kvflags_cli.render.tables import table

__all__ = ["simulation"]


def simulation(document: dict[str, Any]) -> Iterator[RenderableType]:
    yield Text(
        f"{document['rollouts']:,} rollouts of {document['deployments']:,} deployments over {document['days']} days, "
        f"effect {document['effect']:+.0%} (SD {document['heterogeneity']:g}), failures x{document['error_ratio']:g}, "
        f"seed {document['seed']}"
    )
    rows = [row for row in document["verdicts"] if row["rollouts"]]
    yield table(
        ("VERDICT", ">ROLLOUTS", ">SHARE", ">MEDIAN DAY", "~REASONS"),
        (
            (
                row["state"],
                count(row["rollouts"]),
                percent(row["share"]),
                ABSENT if row["median_day"] is None else amount(row["median_day"]),
                ", ".join(f"{reason} {number}" for reason, number in row["reasons"].items()),
            )
            for row in rows
        ),
    )
