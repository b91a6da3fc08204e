# SPDX-License-Identifier: Apache-2.0
"""Roll-ups by the month. The days that are there are merged soon after; until then they count as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018_months"
down_revision = "0017_resources_seen"

_LABELS = ("engine_id", "arm", "direction", "size_class", "backend")
_INTEGERS = ("seen", "transfers", "incomplete", "failed", "late")
_SUMS = ("bytes", "descriptors", "blocks", "duration_ns_sum", "post_ns_sum")
# One mark for all is enough: nobody has seen it yet.
_MARK = (
    "INSERT INTO dirty_months (month_us, deployment, mark)"
    " SELECT DISTINCT day_us / 2592000000000 * 2592000000000, deployment, 1 FROM rollups_day"
)


def upgrade() -> None:
    op.create_table(
        "rollups_month",
        sa.Column("month_us", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("deployment", "generation")),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _LABELS),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _INTEGERS),
        sa.Column("errors", sa.JSON(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _SUMS),
        *(sa.Column(f"duration_{name}_sum", sa.Float(), nullable=False) for name in ("sq", "log", "log_sq")),
        *(sa.Column(f"duration_ns_{name}", sa.BigInteger()) for name in ("min", "max")),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in ("duration_hist", "post_hist")),
        sa.PrimaryKeyConstraint("month_us", "deployment", "generation", "epoch", *_LABELS, name="pk_rollups_month"),
    )
    op.create_table(
        "dirty_months",
        sa.Column("month_us", sa.BigInteger(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.Column("due_us", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("month_us", "deployment", name="pk_dirty_months"),
        sqlite_with_rowid=False,
    )
    undecided = sa.text("epoch = 0")
    op.create_index(
        "ix_rollups_day_undecided", "rollups_day", ["day_us"], sqlite_where=undecided, postgresql_where=undecided
    )
    op.execute(_MARK)


def downgrade() -> None:
    op.drop_index("ix_rollups_day_undecided", "rollups_day")
    op.drop_table("dirty_months")
    op.drop_table("rollups_month")
