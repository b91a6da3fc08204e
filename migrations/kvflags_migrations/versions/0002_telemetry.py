# SPDX-License-Identifier: Apache-2.0
"""Telemetry: raw spans, their resources, the minutes to be rolled, and the minute roll-ups."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002_telemetry"
down_revision = "0001_control"


def _columns(kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _label(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def upgrade() -> None:
    op.create_table(
        "spans",
        *_columns(sa.BigInteger(), "start_ns"),
        *_columns(sa.LargeBinary(16), "trace_id"),
        *_columns(sa.LargeBinary(8), "span_id"),
        *_columns(sa.BigInteger(), "end_ns"),
        *_columns(sa.Text(), "name"),
        *_columns(sa.SmallInteger(), "kind", "status"),
        *_columns(sa.Text(), "error_type", "flag", "flag_version", "variant", nullable=True),
        *(_label(name) for name in ("arm", "deployment", "generation")),
        sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="0"),
        _label("engine_id"),
        *_columns(sa.Text(), "remote_engine", "role", "mode", nullable=True),
        *_columns(sa.BigInteger(), "rank", "world_size", "bytes", "descriptors", "blocks", "post_ns", nullable=True),
        *_columns(sa.Boolean(), "effective", nullable=True),
        _label("backend"),
        *_columns(sa.LargeBinary(16), "resource"),
        *_columns(sa.JSON(), "attributes", nullable=True),
        *_columns(sa.BigInteger(), "received_us"),
        sa.PrimaryKeyConstraint("start_ns", "trace_id", "span_id", name="pk_spans"),
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (start_ns)",
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("ix_spans_start_ns", "spans", ["start_ns"], postgresql_using="brin")
    op.create_index(
        "ix_spans_ranks",
        "spans",
        ["trace_id"],
        sqlite_where=sa.text("world_size > 1"),
        postgresql_where=sa.text("world_size > 1"),
    )
    op.create_table(
        "resources",
        *_columns(sa.LargeBinary(16), "fingerprint"),
        *_columns(sa.JSON(), "attributes"),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_resources"),
    )
    op.create_table(
        "dirty_minutes",
        *_columns(sa.BigInteger(), "minute_us"),
        *_columns(sa.Text(), "deployment"),
        *_columns(sa.BigInteger(), "mark"),
        sa.Column("due_us", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("minute_us", "deployment", name="pk_dirty_minutes"),
        sqlite_with_rowid=False,
    )
    key = ("minute_us", "deployment", "generation", "epoch", "engine_id", "arm", "direction", "size_class", "backend")
    op.create_table(
        "rollups_minute",
        *(
            sa.Column(name, sa.BigInteger() if name in ("minute_us", "epoch") else sa.Text(), nullable=False)
            for name in key
        ),
        *_columns(sa.Integer(), "transfers", "incomplete", "failed"),
        *_columns(sa.JSON(), "errors"),
        *_columns(sa.BigInteger(), "bytes", "descriptors", "blocks", "duration_ns_sum"),
        *_columns(sa.Float(), "duration_log_sum"),
        *_columns(sa.BigInteger(), "post_ns_sum"),
        *_columns(sa.BigInteger(), "duration_ns_min", "duration_ns_max", nullable=True),
        *_columns(sa.LargeBinary(), "duration_hist", "post_hist"),
        sa.PrimaryKeyConstraint(*key, name="pk_rollups_minute"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("rollups_minute", "dirty_minutes", "resources", "spans"):
        op.drop_table(table)
