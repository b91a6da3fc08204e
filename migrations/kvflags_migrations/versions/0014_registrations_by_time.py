# SPDX-License-Identifier: Apache-2.0
"""Registrations in the order in which they came, by an index: pages of engines begin anywhere in it."""

from __future__ import annotations

from alembic import op

revision = "0014_registrations_by_time"
down_revision = "0013_judgements"


def upgrade() -> None:
    op.create_index("ix_registrations_registered_us_id", "registrations", ["registered_us", "id"])


def downgrade() -> None:
    op.drop_index("ix_registrations_registered_us_id", "registrations")
