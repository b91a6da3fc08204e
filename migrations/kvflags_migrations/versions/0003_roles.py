# SPDX-License-Identifier: Apache-2.0
"""Leases of the roles that one of several collectors has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_roles"
down_revision = "0002_telemetry"


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("holder", sa.String(128), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("role", name="pk_leases"),
    )


def downgrade() -> None:
    op.drop_table("leases")
