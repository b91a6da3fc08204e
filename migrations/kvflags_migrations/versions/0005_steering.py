# SPDX-License-Identifier: Apache-2.0
"""What operators say of single deployments, the audit log of it, epochs told to engines, and repeated requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_steering"
down_revision = "0004_outcomes"


def upgrade() -> None:
    op.add_column("flag_revisions", sa.Column("evidence", sa.JSON(none_as_null=True)))
    op.add_column("registrations", sa.Column("told", sa.JSON(none_as_null=True)))
    op.create_table(
        "declarations",
        _deployment(),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("declared_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", name="pk_declarations"),
        _of_deployment("declarations"),
    )
    op.create_table(
        "opts",
        sa.Column("flag", sa.String(64), nullable=False),
        _deployment(),
        sa.Column("opted", sa.String(8), nullable=False),
        sa.Column("opted_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("flag", "deployment", name="pk_opts"),
        _of_flag("opts"),
        _of_deployment("opts"),
    )
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("flag", sa.String(64)),
        _deployment(),
        sa.Column("generation", sa.String(253)),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
        _of_flag("changes"),
        _of_deployment("changes"),
    )
    op.create_index("ix_changes_flag", "changes", ["flag"])
    op.create_table(
        "answers",
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_answers"),
    )
    op.create_index("ix_answers_recorded_us", "answers", ["recorded_us"])


def downgrade() -> None:
    for table in ("answers", "changes", "opts", "declarations"):
        op.drop_table(table)
    op.drop_column("registrations", "told")
    op.drop_column("flag_revisions", "evidence")


def _deployment() -> sa.Column[str]:
    return sa.Column("deployment", sa.String(253), nullable=False)


def _of_flag(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["flag"], ["flags.key"], name=f"fk_{table}_flag")


def _of_deployment(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name=f"fk_{table}_deployment")
