# SPDX-License-Identifier: Apache-2.0
"""The one MetaData of all tables. Its naming convention lets a later migration name every constraint."""

from __future__ import annotations

from sqlalchemy import MetaData

__all__ = ["metadata"]

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)
