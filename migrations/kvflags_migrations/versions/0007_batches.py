# SPDX-License-Identifier: Apache-2.0
"""Requests that were stored lately, so that one sent again is known at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007_batches"
down_revision = "0006_rollups"


def upgrade() -> None:
    op.create_table(
        "ingest_batches",
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("received_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_ingest_batches"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_ingest_batches_received_us", "ingest_batches", ["received_us"])


def downgrade() -> None:
    op.drop_table("ingest_batches")
