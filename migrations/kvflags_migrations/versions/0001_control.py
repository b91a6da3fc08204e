# SPDX-License-Identifier: Apache-2.0
"""The control plane: flags, deployments, the ledger of pins, leases, alarms and feedback."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_control"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "collector_keys",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("private_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_collector_keys"),
    )
    op.create_table(
        "collectors",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("alive_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_collectors"),
    )
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(253), nullable=False),
        sa.Column("first_seen_us", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_us", sa.BigInteger(), nullable=False),
        sa.Column("baseline_us", sa.BigInteger()),
        sa.Column("observed", sa.JSON(none_as_null=True)),
        sa.Column("observed_us", sa.BigInteger()),
        sa.Column("observed_generation", sa.String(253)),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
    )
    op.create_table(
        "flags",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("feature", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("archived_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("key", name="pk_flags"),
    )
    op.create_index(
        "uq_flags_feature_unarchived",
        "flags",
        ["feature"],
        unique=True,
        sqlite_where=sa.text("archived_us IS NULL"),
        postgresql_where=sa.text("archived_us IS NULL"),
    )
    op.create_table(
        "alarms",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("flag", sa.String(64)),
        sa.Column("deployment", sa.String(253), nullable=False),
        sa.Column("generation", sa.String(253), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("first_us", sa.BigInteger(), nullable=False),
        sa.Column("last_us", sa.BigInteger(), nullable=False),
        sa.Column("ended_us", sa.BigInteger()),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_alarms_deployment"),
        sa.ForeignKeyConstraint(["flag"], ["flags.key"], name="fk_alarms_flag"),
        sa.PrimaryKeyConstraint("id", name="pk_alarms"),
        sa.UniqueConstraint(
            "kind", "deployment", "generation", "epoch", name="uq_alarms_kind_deployment_generation_epoch"
        ),
    )
    op.create_table(
        "assignments",
        sa.Column("flag", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(253), nullable=False),
        sa.Column("arm", sa.String(16)),
        sa.Column("comparison", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("backend", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("ever_treated", sa.Boolean(), nullable=False),
        sa.Column("assigned_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_assignments_deployment"),
        sa.ForeignKeyConstraint(["flag"], ["flags.key"], name="fk_assignments_flag"),
        sa.PrimaryKeyConstraint("flag", "deployment", name="pk_assignments"),
    )
    op.create_table(
        "feedback",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("flag", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(253)),
        sa.Column("generation", sa.String(253)),
        sa.Column("sign", sa.String(16), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("tag", sa.String(64), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["flag"], ["flags.key"], name="fk_feedback_flag"),
        sa.PrimaryKeyConstraint("id", name="pk_feedback"),
    )
    op.create_index(
        "ix_feedback_flag_deployment_generation", "feedback", ["flag", "deployment", "generation"], unique=False
    )
    op.create_table(
        "flag_revisions",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("recorded_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["flags.key"], name="fk_flag_revisions_key"),
        sa.PrimaryKeyConstraint("key", "revision", name="pk_flag_revisions"),
    )
    op.create_table(
        "pins",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("flag", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(253), nullable=False),
        sa.Column("generation", sa.String(253), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("variant", sa.String(8), nullable=False),
        sa.Column("arm", sa.String(16)),
        sa.Column("comparison", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.Integer()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("pinned_by", sa.String(64), nullable=False),
        sa.Column("pinned_us", sa.BigInteger(), nullable=False),
        sa.Column("condemned_reason", sa.String(64)),
        sa.Column("closed_us", sa.BigInteger()),
        sa.Column("excluded_because", sa.String(64)),
        sa.Column("held_until_us", sa.BigInteger()),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_pins_deployment"),
        sa.ForeignKeyConstraint(["flag"], ["flags.key"], name="fk_pins_flag"),
        sa.PrimaryKeyConstraint("id", name="pk_pins"),
        sa.UniqueConstraint(
            "flag", "deployment", "generation", "epoch", name="uq_pins_flag_deployment_generation_epoch"
        ),
    )
    op.create_index(
        "uq_pins_open",
        "pins",
        ["flag", "deployment", "generation"],
        unique=True,
        sqlite_where=sa.text("closed_us IS NULL"),
        postgresql_where=sa.text("closed_us IS NULL"),
    )
    op.create_table(
        "registrations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(253)),
        sa.Column("generation", sa.String(253), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("local", sa.JSON(none_as_null=True)),
        sa.Column("kvflags", sa.String(64), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("running", sa.String(8)),
        sa.Column("problems", sa.JSON(), nullable=False),
        sa.Column("registered_us", sa.BigInteger(), nullable=False),
        sa.Column("lease_until_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_registrations_deployment"),
        sa.PrimaryKeyConstraint("id", name="pk_registrations"),
    )
    op.create_index(
        "ix_registrations_deployment_generation_lease_until_us",
        "registrations",
        ["deployment", "generation", "lease_until_us"],
        unique=False,
    )
    op.create_table(
        "engines",
        sa.Column("registration", sa.String(64), nullable=False),
        sa.Column("engine_id", sa.String(128), nullable=False),
        sa.Column("deployment", sa.String(253)),
        sa.Column("generation", sa.String(253), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("ranks", sa.Integer(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("requested", sa.String(64)),
        sa.Column("resolved", sa.String(64)),
        sa.Column("regions", sa.Integer()),
        sa.Column("layers", sa.Integer()),
        sa.Column("effective", sa.Boolean()),
        sa.Column("ok", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("dropped_spans", sa.BigInteger(), nullable=False),
        sa.Column("dropped_events", sa.BigInteger(), nullable=False),
        sa.Column("problems", sa.JSON(), nullable=False),
        sa.Column("skew_ms", sa.Float()),
        sa.Column("first_us", sa.BigInteger(), nullable=False),
        sa.Column("last_us", sa.BigInteger(), nullable=False),
        sa.Column("lease_until_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["deployment"], ["deployments.id"], name="fk_engines_deployment"),
        sa.ForeignKeyConstraint(["registration"], ["registrations.id"], name="fk_engines_registration"),
        sa.PrimaryKeyConstraint("registration", "engine_id", name="pk_engines"),
    )
    op.create_index(
        "ix_engines_deployment_generation_lease_until_us",
        "engines",
        ["deployment", "generation", "lease_until_us"],
        unique=False,
    )
    op.create_index("ix_engines_engine_id", "engines", ["engine_id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_engines_engine_id", table_name="engines")
    op.drop_index("ix_engines_deployment_generation_lease_until_us", table_name="engines")
    op.drop_table("engines")
    op.drop_index("ix_registrations_deployment_generation_lease_until_us", table_name="registrations")
    op.drop_table("registrations")
    op.drop_index(
        "uq_pins_open",
        table_name="pins",
        sqlite_where=sa.text("closed_us IS NULL"),
        postgresql_where=sa.text("closed_us IS NULL"),
    )
    op.drop_table("pins")
    op.drop_table("flag_revisions")
    op.drop_index("ix_feedback_flag_deployment_generation", table_name="feedback")
    op.drop_table("feedback")
    op.drop_table("assignments")
    op.drop_table("alarms")
    op.drop_index(
        "uq_flags_feature_unarchived",
        table_name="flags",
        sqlite_where=sa.text("archived_us IS NULL"),
        postgresql_where=sa.text("archived_us IS NULL"),
    )
    op.drop_table("flags")
    op.drop_table("deployments")
    op.drop_table("collectors")
    op.drop_table("collector_keys")
