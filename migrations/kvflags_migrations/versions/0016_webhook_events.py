# SPDX-License-Identifier: Apache-2.0
"""What a webhook is told, and how far its delivery is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016_webhook_events"
down_revision = "0015_canaries"


def upgrade() -> None:
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.String(400), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_us", sa.BigInteger()),
        sa.Column("delivered_us", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_events"),
    )
    op.create_index("ix_webhook_events_due_us", "webhook_events", ["due_us"])


def downgrade() -> None:
    op.drop_table("webhook_events")
