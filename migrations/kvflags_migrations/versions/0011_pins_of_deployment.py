# SPDX-License-Identifier: Apache-2.0
"""The open pins of one deployment by an index: each registration asks for them, and the ledger only grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_pins_of_deployment"
down_revision = "0010_given_feedback"


def upgrade() -> None:
    still_open = sa.text("closed_us IS NULL")
    op.create_index(
        "ix_pins_open_deployment", "pins", ["deployment"], sqlite_where=still_open, postgresql_where=still_open
    )


def downgrade() -> None:
    op.drop_index("ix_pins_open_deployment", "pins")
