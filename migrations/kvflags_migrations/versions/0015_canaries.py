# SPDX-License-Identifier: Apache-2.0
"""Results of canaries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015_canaries"
down_revision = "0014_registrations_by_time"


def upgrade() -> None:
    op.create_table(
        "canaries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("deployment", sa.String(253), nullable=False),
        sa.Column("generation", sa.String(253), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("compared", sa.Integer(), nullable=False),
        sa.Column("mismatched", sa.Integer(), nullable=False),
        sa.Column("max_delta", sa.Float(), nullable=True),
        sa.Column("tolerance", sa.Float(), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_canaries"),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_canaries_deployment"),
    )
    op.create_index("ix_canaries_deployment_generation_epoch", "canaries", ["deployment", "generation", "epoch"])


def downgrade() -> None:
    op.drop_table("canaries")
