# SPDX-License-Identifier: Apache-2.0
"""What `doctor` looks at: `host` this machine, `fleet` the collector and its engines, `database` its revision."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Check", "finding", "ok", "skipped"]


class Check(NamedTuple):
    """One thing that was looked at. `says` is what was seen; a finding has a hint, the others have none."""

    name: str
    outcome: Literal["ok", "finding", "skipped"]
    says: str
    hint: str = ""


def ok(name: str, says: str) -> Check:
    return Check(name, "ok", says)


def finding(name: str, says: str, hint: str) -> Check:
    return Check(name, "finding", says, hint)


def skipped(name: str, says: str) -> Check:
    return Check(name, "skipped", says)
