# SPDX-License-Identifier: Apache-2.0
"""Events of deployments, frozen at 3, 7 and 14 days."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_frozen_events"
down_revision = "0008_tokens"


def upgrade() -> None:
    op.create_table(
        "frozen_events",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("flag", "deployment")),
        sa.Column("event_us", sa.BigInteger(), nullable=False),
        sa.Column("horizon", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("treated", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("cohort", "stratum")),
        sa.Column("left_out", sa.Text()),
        sa.Column("measured", sa.JSON(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("flag", "deployment", "event_us", "horizon", name="pk_frozen_events"),
    )


def downgrade() -> None:
    op.drop_table("frozen_events")
