# SPDX-License-Identifier: Apache-2.0
"""When a resource came last, so that it goes with its last span. Those that are there count as seen now."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0017_resources_seen"
down_revision = "0016_webhook_events"


def upgrade() -> None:
    op.add_column("resources", sa.Column("seen_us", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(f"UPDATE resources SET seen_us = {time.time_ns() // 1000}")  # noqa: S608 - a number
    op.create_index("ix_resources_seen_us", "resources", ["seen_us"])


def downgrade() -> None:
    op.drop_index("ix_resources_seen_us", "resources")
    op.drop_column("resources", "seen_us")
