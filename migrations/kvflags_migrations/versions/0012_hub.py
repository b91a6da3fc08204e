# SPDX-License-Identifier: Apache-2.0
"""A hub's bundles, and the standing of the organisations that sent them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012_hub"
down_revision = "0011_pins_of_deployment"


def upgrade() -> None:
    op.create_table(
        "hub_bundles",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key", sa.String(43), nullable=False),
        sa.Column("feature", sa.Text(), nullable=False),
        sa.Column("fleet", sa.String(16), nullable=False),
        sa.Column("figures", sa.String(64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("signature", sa.String(86), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.Column("revoked_us", sa.BigInteger()),
        sa.Column("revocation", sa.String(86)),
        sa.PrimaryKeyConstraint("digest", name="pk_hub_bundles"),
    )
    op.create_index("ix_hub_bundles_feature_recorded_us", "hub_bundles", ["feature", "recorded_us"])
    op.create_index("ix_hub_bundles_key", "hub_bundles", ["key"])
    op.create_table(
        "hub_standing",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("key", sa.String(43), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hub_standing"),
    )
    op.create_index("ix_hub_standing_key", "hub_standing", ["key"])


def downgrade() -> None:
    op.drop_table("hub_standing")
    op.drop_table("hub_bundles")
