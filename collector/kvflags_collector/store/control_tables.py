# SPDX-License-Identifier: Apache-2.0
"""The control plane's tables: flags with their revisions, the ledger of pins, leases, alarms, feedback.

Times are UTC in integer microseconds (`*_us`). JSON columns hold what the domain's `to_json` gives. Append-only:
`flag_revisions`, `changes`, `feedback`. At most one pin of a (flag, deployment, generation) is not closed, and at most
one flag of a feature is not archived: the database itself refuses a second, whoever writes.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from kvflags_collector.store.metadata import metadata

__all__ = [
    "alarms",
    "answers",
    "assignments",
    "changes",
    "collector_keys",
    "collectors",
    "declarations",
    "deployments",
    "engines",
    "feedback",
    "flag_revisions",
    "flags",
    "leases",
    "opts",
    "pins",
    "registrations",
]

# SQLite numbers rows by itself only where the column is exactly INTEGER.
_RowId = BigInteger().with_variant(Integer, "sqlite")
_Name = String(64)
_Deployment = String(253)
_Generation = String(253)
_Null = JSON(none_as_null=True)

flags = Table(
    "flags",
    metadata,
    Column("key", _Name, primary_key=True),
    Column("feature", _Name, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("document", JSON, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("archived_us", BigInteger),
    Index(
        "uq_flags_feature_unarchived",
        "feature",
        unique=True,
        sqlite_where=text("archived_us IS NULL"),
        postgresql_where=text("archived_us IS NULL"),
    ),
)

# evidence: what an automatic change acted on (metric, value, limit, n, interval); null for those of people.
flag_revisions = Table(
    "flag_revisions",
    metadata,
    Column("key", _Name, ForeignKey("flags.key"), primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("document", JSON, nullable=False),
    Column("action", String(32), nullable=False),
    Column("author", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Column("evidence", _Null),
)

# observed: {role: [facts, ...]} over the live engines of `observed_generation`. baseline_us: since when it is observed
# with these static facts; a flag treats a deployment only `baseline_s` later.
deployments = Table(
    "deployments",
    metadata,
    Column("id", _Deployment, primary_key=True),
    Column("first_seen_us", BigInteger, nullable=False),
    Column("last_seen_us", BigInteger, nullable=False),
    Column("baseline_us", BigInteger),
    Column("observed", _Null),
    Column("observed_us", BigInteger),
    Column("observed_generation", _Generation),
)

# What an operator states of a deployment: isolation, numbers of engines, labels, and facts that waive observation.
declarations = Table(
    "declarations",
    metadata,
    Column("deployment", _Deployment, ForeignKey("deployments.id"), primary_key=True),
    Column("document", JSON, nullable=False),
    Column("declared_us", BigInteger, nullable=False),
)

# A deployment that was opted `in` or `out` by hand; no row while it takes what is dealt.
opts = Table(
    "opts",
    metadata,
    Column("flag", _Name, ForeignKey("flags.key"), primary_key=True),
    Column("deployment", _Deployment, ForeignKey("deployments.id"), primary_key=True),
    Column("opted", String(8), nullable=False),
    Column("opted_us", BigInteger, nullable=False),
)

# What people did to single deployments. With `flag_revisions` it is the whole audit log: folding both from the start
# gives every flag, opt and declaration as it stands.
changes = Table(
    "changes",
    metadata,
    Column("id", _RowId, primary_key=True),
    Column("action", String(32), nullable=False),
    Column("flag", _Name, ForeignKey("flags.key")),
    Column("deployment", _Deployment, ForeignKey("deployments.id"), nullable=False),
    Column("generation", _Generation),
    Column("author", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "flag"),
)

# Answers already given to a request with an idempotency key: a repeated request gets the same one.
answers = Table(
    "answers",
    metadata,
    Column("key", String(128), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("document", JSON, nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "recorded_us"),
)

assignments = Table(
    "assignments",
    metadata,
    Column("flag", _Name, ForeignKey("flags.key"), primary_key=True),
    Column("deployment", _Deployment, ForeignKey("deployments.id"), primary_key=True),
    Column("arm", String(16)),
    Column("comparison", String(16), nullable=False),
    Column("reason", String(64), nullable=False),
    Column("bucket", Integer, nullable=False),
    Column("backend", _Name, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("ever_treated", Boolean, nullable=False),
    Column("assigned_us", BigInteger, nullable=False),
)

# comparison: as pinned, and `excluded` with `excluded_because` once something happened that takes the generation out
# (a forced engine). held_until_us: a decision was handed out, so the epoch cannot close before that expires.
pins = Table(
    "pins",
    metadata,
    Column("id", _RowId, primary_key=True),
    Column("flag", _Name, ForeignKey("flags.key"), nullable=False),
    Column("deployment", _Deployment, ForeignKey("deployments.id"), nullable=False),
    Column("generation", _Generation, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("variant", String(8), nullable=False),
    Column("arm", String(16)),
    Column("comparison", String(16), nullable=False),
    Column("reason", String(64), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("bucket", Integer),
    Column("state", String(16), nullable=False),
    Column("pinned_by", _Name, nullable=False),
    Column("pinned_us", BigInteger, nullable=False),
    Column("condemned_reason", String(64)),
    Column("closed_us", BigInteger),
    Column("excluded_because", String(64)),
    Column("held_until_us", BigInteger),
    UniqueConstraint("flag", "deployment", "generation", "epoch"),
    Index(
        "uq_pins_open",
        "flag",
        "deployment",
        "generation",
        unique=True,
        sqlite_where=text("closed_us IS NULL"),
        postgresql_where=text("closed_us IS NULL"),
    ),
    Index(
        "ix_pins_open_deployment",
        "deployment",
        sqlite_where=text("closed_us IS NULL"),
        postgresql_where=text("closed_us IS NULL"),
    ),
)

# told: {flag: {epoch, variant}} of the last answer; null for an engine with settings of its own.
registrations = Table(
    "registrations",
    metadata,
    Column("id", _Name, primary_key=True),
    Column("deployment", _Deployment, ForeignKey("deployments.id")),
    Column("generation", _Generation, nullable=False),
    Column("role", String(16), nullable=False),
    Column("facts", JSON, nullable=False),
    Column("local", _Null),
    Column("kvflags", _Name, nullable=False),
    Column("deaths", Integer, nullable=False),
    Column("running", String(8)),
    Column("problems", JSON, nullable=False),
    Column("registered_us", BigInteger, nullable=False),
    Column("lease_until_us", BigInteger, nullable=False),
    Column("told", _Null),
    Index(None, "deployment", "generation", "lease_until_us"),
    Index(None, "registered_us", "id"),
)

engines = Table(
    "engines",
    metadata,
    Column("registration", _Name, ForeignKey("registrations.id"), primary_key=True),
    Column("engine_id", String(128), primary_key=True),
    Column("deployment", _Deployment, ForeignKey("deployments.id")),
    Column("generation", _Generation, nullable=False),
    Column("role", String(16), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("ranks", Integer, nullable=False),
    Column("facts", JSON, nullable=False),
    Column("requested", _Name),
    Column("resolved", _Name),
    Column("regions", Integer),
    Column("layers", Integer),
    Column("effective", Boolean),
    Column("ok", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("dropped_spans", BigInteger, nullable=False),
    Column("dropped_events", BigInteger, nullable=False),
    Column("problems", JSON, nullable=False),
    Column("skew_ms", Float),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False),
    Column("lease_until_us", BigInteger, nullable=False),
    Index(None, "deployment", "generation", "lease_until_us"),
    Index(None, "engine_id"),
)

alarms = Table(
    "alarms",
    metadata,
    Column("id", _RowId, primary_key=True),
    Column("kind", _Name, nullable=False),
    Column("flag", _Name, ForeignKey("flags.key")),
    Column("deployment", _Deployment, ForeignKey("deployments.id"), nullable=False),
    Column("generation", _Generation, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    UniqueConstraint("kind", "deployment", "generation", "epoch"),
)

# generation is set for measured feedback: it is given once per (flag, deployment, generation, tag).
feedback = Table(
    "feedback",
    metadata,
    Column("id", _RowId, primary_key=True),
    Column("flag", _Name, ForeignKey("flags.key"), nullable=False),
    Column("deployment", _Deployment),
    Column("generation", _Generation),
    Column("sign", String(16), nullable=False),
    Column("source", String(16), nullable=False),
    Column("tag", _Name, nullable=False),
    Column("comment", Text, nullable=False),
    Column("author", String(200), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Index(None, "flag", "deployment", "generation"),
)

collectors = Table(
    "collectors",
    metadata,
    Column("id", _Name, primary_key=True),
    Column("alive_us", BigInteger, nullable=False),
)

# Who of several collectors has which role, see `store.roles`. `fence` grows with each change of hands.
leases = Table(
    "leases",
    metadata,
    Column("role", String(16), primary_key=True),
    Column("holder", String(128), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)

collector_keys = Table(
    "collector_keys",
    metadata,
    Column("id", _RowId, primary_key=True),
    Column("private_key", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
