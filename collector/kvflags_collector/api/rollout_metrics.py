# SPDX-License-Identifier: Apache-2.0
"""What of each rollout goes to `/metrics`: the verdict and what it rests on, as the page shows them.

Series are bounded by flags (one for each feature), states, arms and outcomes; no deployment's name is ever a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvflags.errors import NotFound
from kvflags.flags import BUCKETS, Arm, Flag, Phase
from kvflags_collector.feedback.signals import signals, summary
from kvflags_collector.rollout import flags
from kvflags_collector.rollout.mixed import KIND
from kvflags_collector.store.database import Database
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.web.views.rollout import Evidence

__all__ = ["FAMILIES", "Rollouts"]

# Family -> what it says, its labels beside `flag`.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "kvflags_rollout_verdict": ("1 for the verdict that is, 0 for the others", ("verdict",)),
    "kvflags_rollout_phase": ("1 for the phase that is, 0 for the others", ("phase",)),
    "kvflags_rollout_revision": ("The flag's revision: it changes with every change of the flag", ()),
    "kvflags_rollout_target_ratio": ("The default target where it is a share, 0 to 1", ()),
    "kvflags_rollout_deployments": ("Deployments in the comparison", ("arm",)),
    "kvflags_rollout_effective_ratio": ("Treated generations whose layout took effect, 0 to 1", ()),
    "kvflags_rollout_mixed_generations": ("Generations that are mixed now", ()),
    "kvflags_rollout_silent_deployments": ("Assigned deployments of which no engine was heard for a day", ()),
    "kvflags_rollout_incomplete_transfers": ("Transfers of which not every rank was heard", ()),
    "kvflags_rollout_feedback": ("Feedback, measured and given", ("sign",)),
    "kvflags_rollout_outcome_change_ratio": (
        "Change of an outcome on treated deployments (0.1 is 10 % more) and its interval",
        ("outcome", "bound"),
    ),
    "kvflags_rollout_evidence_timestamp_seconds": ("When the report was made", ()),
    "kvflags_rollout_fresh_timestamp_seconds": ("Up to when all that came is in the report", ()),
}
_BOUNDS = {"low": "low", "change": "estimate", "high": "high"}


class Rollouts(Collector):
    """`evidence(key)` is what pages show too, so scraping costs nothing more. Blocks: scraped in a thread."""

    def __init__(self, db: Database, evidence: Callable[[str], Evidence], clock: Callable[[], int]) -> None:
        self._db, self._evidence, self._clock = db, evidence, clock

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: being registered must not ask the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        made = {
            name: GaugeMetricFamily(name, says, labels=["flag", *labels]) for name, (says, labels) in FAMILIES.items()
        }
        for flag, feedback in self._standing():
            try:
                found = self._evidence(flag.key)
            except NotFound:
                # Archived since it was listed.
                continue
            for name, labels, value in (*_decided(flag, feedback), *_measured(found)):
                made[name].add_metric([flag.key, *labels], value)
        return made.values()

    def _standing(self) -> list[tuple[Flag, Mapping[str, Any]]]:
        """Each flag and its feedback as they are now."""
        now = self._clock()
        with self._db.read() as conn:
            known = [flags.get(conn, row["key"]) for row in flags.listing(conn, now)]
            return [(flag, summary(signals(conn, flag.key, now))) for flag in known]


_Samples = Iterator[tuple[str, tuple[str, ...], float]]


def _decided(flag: Flag, feedback: Mapping[str, Any]) -> _Samples:
    """(family, labels after the flag, value)."""
    for phase in Phase:
        yield "kvflags_rollout_phase", (phase.value,), float(flag.phase == phase)
    yield "kvflags_rollout_revision", (), float(flag.revision)
    if flag.target is not None and flag.target.share is not None:
        yield "kvflags_rollout_target_ratio", (), flag.target.share / BUCKETS
    for sign in ("positive", "negative"):
        yield "kvflags_rollout_feedback", (sign,), float(feedback[sign])


def _measured(found: Evidence) -> _Samples:
    """What is not known has no sample, never a 0."""
    report = found.report
    health = report["data_health"]
    for state in VerdictState:
        yield "kvflags_rollout_verdict", (state.value,), float(report["verdict"]["state"] == state)
    for family, moment in (("evidence", "generated_at"), ("fresh", "fresh_as_of")):
        yield f"kvflags_rollout_{family}_timestamp_seconds", (), datetime.fromisoformat(report[moment]).timestamp()
    arms = {one["arm"]: one["deployments"] for one in report["arms"]}
    for arm in Arm:
        yield "kvflags_rollout_deployments", (arm.value,), float(arms.get(arm.value, 0))
    if health["effective_share"] is not None:
        yield "kvflags_rollout_effective_ratio", (), health["effective_share"]
    mixed = {(a["deployment"], a["generation"]) for a in report["alarms"] if a["kind"] == KIND and not a["ended_at"]}
    yield "kvflags_rollout_mixed_generations", (), float(len(mixed))
    silent = sum(one["silent"] and one["assigned"] for one in found.members)
    yield "kvflags_rollout_silent_deployments", (), float(silent)
    yield "kvflags_rollout_incomplete_transfers", (), float(health["incomplete"])
    for one in report["outcomes"]:
        for field, bound in _BOUNDS.items():
            if one[field] is not None:
                yield "kvflags_rollout_outcome_change_ratio", (one["outcome"], bound), one[field]
