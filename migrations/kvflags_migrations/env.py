# SPDX-License-Identifier: Apache-2.0
"""Run by Alembic for each command: migrates over the connection that the caller opened, inside its transaction."""

from __future__ import annotations

from alembic import context

from kvflags_collector.store.metadata import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite can change a column only by copying the table, which Alembic calls batch.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
