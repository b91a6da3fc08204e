# SPDX-License-Identifier: Apache-2.0
"""The error guard's blocks of six hours, and every verdict with what it asks for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013_judgements"
down_revision = "0012_hub"


def upgrade() -> None:
    op.create_table(
        "frozen_blocks",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("flag", "deployment")),
        sa.Column("event_us", sa.BigInteger(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("failed", "transfers", "recorded_us")),
        sa.PrimaryKeyConstraint("flag", "deployment", "event_us", "block", name="pk_frozen_blocks"),
    )
    op.create_table(
        "judgements",
        sa.Column("flag", sa.Text(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("state", "reason")),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("checked_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("flag", "recorded_us", name="pk_judgements"),
    )


def downgrade() -> None:
    for table in ("judgements", "frozen_blocks"):
        op.drop_table(table)
