# SPDX-License-Identifier: Apache-2.0
"""Outcomes by the hour and the day, and the events that engines send."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_outcomes"
down_revision = "0003_roles"

_KEY = ("deployment", "generation", "epoch", "engine_id", "arm", "instrument")


def _outcomes(table: str, time: str, *more: sa.Column[bytes]) -> None:
    op.create_table(
        table,
        sa.Column(time, sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.BigInteger() if name == "epoch" else sa.Text(), nullable=False) for name in _KEY),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
            for name in ("points", "count", "sum_micro")
        ),
        sa.Column("hist", sa.LargeBinary()),
        *more,
        sa.PrimaryKeyConstraint(time, *_KEY, name=f"pk_{table}"),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    _outcomes("outcomes_hour", "hour_us", sa.Column("seen", sa.LargeBinary()))
    _outcomes("outcomes_day", "day_us")
    op.create_table(
        "events",
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False, server_default="") for name in ("deployment", "generation")),
        sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("engine_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("rank", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.Column("received_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("time_us", "fingerprint", name="pk_events"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_events_deployment_time_us", "events", ["deployment", "time_us"])


def downgrade() -> None:
    for table in ("events", "outcomes_day", "outcomes_hour"):
        op.drop_table(table)
