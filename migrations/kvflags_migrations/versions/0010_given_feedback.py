# SPDX-License-Identifier: Apache-2.0
"""Feedback that people give, with every revision of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_given_feedback"
down_revision = "0009_frozen_events"


def upgrade() -> None:
    op.create_table(
        "given_feedback",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("flag", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(253), nullable=False),
        sa.Column("sign", sa.String(16), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("seen", sa.JSON(), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", "revision", name="pk_given_feedback"),
        sa.ForeignKeyConstraint(["flag"], ["flags.key"], name="fk_given_feedback_flag"),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_given_feedback_deployment"),
    )
    op.create_index("ix_given_feedback_flag", "given_feedback", ["flag"])


def downgrade() -> None:
    op.drop_table("given_feedback")
