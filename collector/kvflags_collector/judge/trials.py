# SPDX-License-Identifier: Apache-2.0
"""Whether the arms are as large as drawn, and fall silent alike: one trial for each deployment that was assigned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, RowMapping, select

from kvflags.flags import BUCKETS, Arm, Comparison, Flag
from kvflags_collector.store.control_tables import assignments, deployments
from kvflags_collector.times import SECOND
from kvflags_collector.verdict.evidence import Check, Trials

__all__ = ["trials"]

# Who has not been heard for so long has fallen silent.
_SILENT_US = 72 * 3600 * SECOND


def trials(conn: Connection, flag: Flag, now_us: int) -> dict[Check, Trials]:
    """By check. Each deployment is one draw at the share that its target has come to, whatever steps led there.

    Where places are counted nothing was drawn, and where treated deployments were released, those who remain were not
    drawn at that share: then only silence is looked at.
    """
    a, d = assignments.c, deployments.c
    query = (
        select(assignments, d.last_seen_us)
        .join(deployments, d.id == a.deployment)
        .where(a.flag == flag.key, a.arm.is_not(None))
        .order_by(a.deployment)
    )
    rows = conn.execute(query).mappings().all()
    included = [row for row in rows if row["comparison"] == Comparison.INCLUDED]
    silent = [now_us - row["last_seen_us"] >= _SILENT_US for row in included]
    found: dict[Check, Trials] = {}
    heard = [row for row, gone in zip(included, silent, strict=True) if not gone]
    shares = [flag.target_for(row["backend"]).share for row in heard]
    released = any(row["ever_treated"] and row["comparison"] != Comparison.INCLUDED for row in rows)
    if heard and None not in shares and not released:
        drawn = np.array([(share or 0) / BUCKETS for share in shares])
        found[Check.ASSIGNMENT] = Trials(drawn, _treated(heard))
    gone_rows = [row for row, gone in zip(included, silent, strict=True) if gone]
    if gone_rows:
        share = float(_treated(included).mean())
        found[Check.SILENCE] = Trials(np.full(len(gone_rows), share), _treated(gone_rows))
    return found


def _treated(rows: Sequence[RowMapping]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.array([row["arm"] == Arm.TREATMENT for row in rows], dtype=np.bool_)
