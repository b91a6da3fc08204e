# SPDX-License-Identifier: Apache-2.0
"""Commands that import the service, which is an extra of the package and may not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvflags.errors import OperatorError

__all__ = ["needs_the_collector"]

# Ours, or a library of the extra: what may be missing where only `kvflags[cli]` is installed.
_OPTIONAL = frozenset({"alembic", "fastapi", "jinja2", "numpy", "pydantic", "scipy", "sqlalchemy", "uvicorn"})


@contextmanager
def needs_the_collector() -> Iterator[None]:
    """Turns a missing library of the collector's extra into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        raise OperatorError(
            f"the collector is not installed here: {missing.name} is missing", hint="pip install 'kvflags[collector]'"
        ) from missing
