# SPDX-License-Identifier: Apache-2.0
"""Roll-ups by the hour and the day, more measures in each, presence, and the clocks of engines.

Roll-ups are made of raw spans, so those there are dropped, in both directions, and every minute is marked to be rolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006_rollups"
down_revision = "0005_steering"

_LABELS = ("engine_id", "arm", "direction", "size_class", "backend")
_ROLL_AGAIN = (
    "INSERT INTO dirty_minutes (minute_us, deployment, mark, due_us)"
    " SELECT DISTINCT start_ns / 60000000000 * 60000000, deployment, 1, 0 FROM spans WHERE name = 'kv.transfer'"
    " ON CONFLICT (minute_us, deployment) DO UPDATE SET due_us = 0"
)


def _columns(kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _table(name: str, key: Sequence[str], columns: Sequence[sa.Column[Any]], *, rowid: bool = False) -> None:
    kinds = {one: sa.BigInteger() if one.endswith("_us") or one == "epoch" else sa.Text() for one in key}
    op.create_table(
        name,
        *(sa.Column(one, kind, nullable=False) for one, kind in kinds.items()),
        *columns,
        sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"),
        sqlite_with_rowid=rowid,
    )


def _rollups(unit: str) -> None:
    _table(
        f"rollups_{unit}",
        (f"{unit}_us", "deployment", "generation", "epoch", *_LABELS),
        [
            *_columns(sa.BigInteger(), "seen", "transfers", "incomplete", "failed", "late"),
            *_columns(sa.JSON(), "errors"),
            *_columns(sa.BigInteger(), "bytes", "descriptors", "blocks", "duration_ns_sum", "post_ns_sum"),
            *_columns(sa.Float(), "duration_sq_sum", "duration_log_sum", "duration_log_sq_sum"),
            *_columns(sa.BigInteger(), "duration_ns_min", "duration_ns_max", nullable=True),
            *_columns(sa.LargeBinary(), "duration_hist", "post_hist"),
        ],
        rowid=True,
    )


def _minutes_as_before() -> None:
    _table(
        "rollups_minute",
        ("minute_us", "deployment", "generation", "epoch", *_LABELS),
        [
            *_columns(sa.Integer(), "transfers", "incomplete", "failed"),
            *_columns(sa.JSON(), "errors"),
            *_columns(sa.BigInteger(), "bytes", "descriptors", "blocks", "duration_ns_sum"),
            *_columns(sa.Float(), "duration_log_sum"),
            *_columns(sa.BigInteger(), "post_ns_sum"),
            *_columns(sa.BigInteger(), "duration_ns_min", "duration_ns_max", nullable=True),
            *_columns(sa.LargeBinary(), "duration_hist", "post_hist"),
        ],
    )


def upgrade() -> None:
    op.drop_table("rollups_minute")
    for unit in ("minute", "hour", "day"):
        _rollups(unit)
    for unit in ("hour", "day"):
        dirty = [
            *_columns(sa.BigInteger(), "mark"),
            sa.Column("due_us", sa.BigInteger(), nullable=False, server_default="0"),
        ]
        _table(f"dirty_{unit}s", (f"{unit}_us", "deployment"), dirty)
    key = ("hour_us", "deployment", "generation", "engine_id")
    _table("presence", key, _columns(sa.BigInteger(), "minutes", "starts"))
    skews = [*_columns(sa.Text(), "deployment"), *_columns(sa.BigInteger(), "skew_us")]
    _table("clock_skews", ("engine_id", "since_us"), skews)
    op.create_index("ix_clock_skews_deployment", "clock_skews", ["deployment"])
    op.execute(_ROLL_AGAIN)


def downgrade() -> None:
    for table in (
        "clock_skews",
        "presence",
        "dirty_days",
        "dirty_hours",
        "rollups_day",
        "rollups_hour",
        "rollups_minute",
    ):
        op.drop_table(table)
    _minutes_as_before()
    op.execute(_ROLL_AGAIN)
