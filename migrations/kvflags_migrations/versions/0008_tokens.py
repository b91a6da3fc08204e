# SPDX-License-Identifier: Apache-2.0
"""Tokens, by the hash of their secret."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008_tokens"
down_revision = "0007_batches"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(200), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )


def downgrade() -> None:
    op.drop_table("tokens")
