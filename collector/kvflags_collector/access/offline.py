# SPDX-License-Identifier: Apache-2.0
"""A token made in the database itself: the first one, since the API asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from pydantic import ValidationError

from kvflags.errors import UsageError
from kvflags_collector.access import tokens
from kvflags_collector.api.schemas.access import NewToken
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us

__all__ = ["create_token"]


def create_token(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """As `POST /api/v1/tokens`, checked as there. A new or older database is upgraded first.

    UsageError for what the API would refuse; OperatorError where a collector serves the database.
    """
    try:
        asked = NewToken.model_validate(body)
    except ValidationError as error:
        [first, *_] = error.errors()
        raise UsageError(f"{first['loc'][0]}: {first['msg']}", hint="see `kvflags tokens create --help`") from error
    with closing(Database(url, upgrade=True)) as db, db.write() as conn:
        return tokens.create(conn, **asked.model_dump(), now=now_us())
