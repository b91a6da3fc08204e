# SPDX-License-Identifier: Apache-2.0
"""What a hub says about a feature over organisations, as JSON of schema `kvflags.hub_report/1`.

A function of the bundles that count and of nothing else, the clock included: where one is taken back, the bytes are
those of before it came.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import Any

import numpy as np
from sqlalchemy import Connection, or_, select

from kvflags.errors import UsageError
from kvflags.features import FEATURES
from kvflags_collector.hub.register import Standing, standings
from kvflags_collector.store.hub_tables import hub_bundles
from kvflags_collector.times import rfc3339
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.field import Field, FieldEstimate, Measured, estimate, field_verdict
from kvflags_collector.verdict.organisations import LEAST_ORGANISATIONS, Across, Organisation
from kvflags_collector.verdict.outcomes import Outcome

__all__ = ["SCHEMA", "field_report"]

SCHEMA = "kvflags.hub_report/1"

Json = dict[str, Any]

# No effect is believed to better than 0.1 %. Some are known better, such as that on the number of KV blocks, which is
# all but fixed: one organisation would have all the weight, whether it measured so well or only says so.
_FINEST = 0.001

_LABELS = (
    ("backend", "{}"),
    ("gpu", "{}"),
    ("model_class", "{}"),
    ("vllm", "vLLM {}"),
    ("kv_heads_per_rank", "{} heads"),
    ("block_size", "block {}"),
    ("transport", "{}"),
)


@dataclass(frozen=True, slots=True)
class _Sent:
    """One fleet's bundle that counts."""

    key: str
    recorded_us: int
    document: Json


def field_report(conn: Connection, feature: str, as_of_us: int | None = None) -> Json:
    """The report on a feature, now or as it was at a time (microseconds). UsageError for an unknown feature."""
    if feature not in FEATURES:
        raise UsageError(f"there is no feature {feature!r}", hint=f"one of {', '.join(sorted(FEATURES))}")
    every = _counted(conn, feature, as_of_us)
    trusted = [one for one in every if one.document["verdict"] != VerdictState.INVALID]
    whole = _field([(one.key, one.document["effects"]) for one in trusted], 1)
    parts = _by_stratum(trusted)
    decided = sum(len({key for key, _ in own}) >= LEAST_ORGANISATIONS for own in parts.values())
    strata = {name: _field([(key, part["effects"]) for key, part in own], decided) for name, own in parts.items()}
    said = field_verdict(whole, strata)
    return {
        "schema": SCHEMA,
        "feature": feature,
        "evidence_until": rfc3339(max((one.recorded_us for one in every), default=None)),
        "verdict": {
            "state": said.state.value,
            "reason": said.reason,
            "why": list(said.why),
            "next": said.next,
            "scope": list(said.scope),
        },
        "organisations": len({one.key for one in every}),
        "fleets": len(every),
        "deployments": _total(one.document["deployments"] for one in every),
        "treated": _total(one.document["treated"] for one in every),
        "control": _total(one.document["control"] for one in every),
        "outcomes": [_outcome(whole[outcome]) for outcome in Outcome if outcome in whole],
        "strata": [_stratum(name, parts[name], own, name in said.scope) for name, own in sorted(strata.items())],
        "fleet_verdicts": _numbers(one.document["verdict"] for one in every),
        "architectures": _architectures(every),
        "measured": _cells(every, "measured"),
        "given": _cells(every, "given"),
    }


def _counted(conn: Connection, feature: str, as_of_us: int | None) -> list[_Sent]:
    """Of each fleet its last bundle that stands, of organisations that are admitted; by key and fleet."""
    b = hub_bundles.c
    query = select(b.key, b.fleet, b.recorded_us, b.document).where(b.feature == feature)
    if as_of_us is None:
        query = query.where(b.revoked_us.is_(None))
    else:
        query = query.where(b.recorded_us <= as_of_us, or_(b.revoked_us.is_(None), b.revoked_us > as_of_us))
    admitted = {key for key, (state, _) in standings(conn, as_of_us).items() if state is Standing.ADMITTED}
    last: dict[tuple[str, str], _Sent] = {}
    for key, fleet, recorded_us, document in conn.execute(query.order_by(b.recorded_us, b.digest)):
        if key in admitted:
            last[key, fleet] = _Sent(key, recorded_us, document)
    return [last[place] for place in sorted(last)]


def _field(own: Sequence[tuple[str, Sequence[Json]]], comparisons: int) -> Field:
    """Every outcome that anybody measured, over organisations; `own`: (key, effects) by fleet."""
    figures: dict[Outcome, dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
    for key, effects in own:
        for effect in effects:
            figures[Outcome(effect["outcome"])][key].append(effect)
    return {outcome: estimate(outcome, _measured(by_key), max(1, comparisons)) for outcome, by_key in figures.items()}


def _measured(by_key: Mapping[str, Sequence[Json]]) -> Measured:
    organisations, unchanged = [], 0
    for key, effects in by_key.items():
        known = [effect for effect in effects if (effect["log_ratio"], effect["se"]) != (0, 0)]
        unchanged += not known
        if known:
            errors = np.array([max(effect["se"], _FINEST) for effect in known], dtype=np.float64)
            values = np.array([effect["log_ratio"] for effect in known], dtype=np.float64)
            organisations.append(Organisation(key, values, errors**2))
    return Measured(organisations, unchanged)


def _by_stratum(sent: Sequence[_Sent]) -> dict[str, list[tuple[str, Json]]]:
    parts: dict[str, list[tuple[str, Json]]] = defaultdict(list)
    for one in sent:
        for part in one.document["strata"]:
            label = ", ".join(form.format(part[name]) for name, form in _LABELS if part.get(name) is not None)
            parts[label].append((one.key, part))
    return parts


def _stratum(name: str, parts: Sequence[tuple[str, Json]], own: Field, ready: bool) -> Json:
    """With few organisations no figures: they would be those of one."""
    organisations = len({key for key, _ in parts})
    enough = organisations >= LEAST_ORGANISATIONS
    return {
        "name": name,
        "organisations": organisations,
        "fleets": len(parts),
        "treated": sum(part["treated"] for _, part in parts),
        "control": sum(part["control"] for _, part in parts),
        "ready": ready,
        "outcomes": [_outcome(own[outcome]) for outcome in Outcome if outcome in own] if enough else [],
    }


def _outcome(found: FieldEstimate) -> Json:
    """Changes as ratios less 1; null where nothing can be said."""
    over = found.across
    return {
        "outcome": found.limit.outcome.value,
        "role": found.limit.role.value,
        "limit": found.limit.words,
        "standing": found.standing.value,
        "organisations": over.organisations if over else 0,
        "unchanged": found.unchanged,
        "fleets": over.fleets if over else 0,
        **_change(over),
        "between": round(over.tau2**0.5, 6) if over else None,
        "largest_share": round(over.share, 6) if over else None,
        "without_largest": _change(over.without) if over and over.without else None,
    }


def _change(over: Across | None) -> Json:
    bounds = (over.delta, over.interval.low, over.interval.high) if over else (None, None, None)
    return {name: _ratio(value) for name, value in zip(("change", "low", "high"), bounds, strict=True)}


def _ratio(log_ratio: float | None) -> float | None:
    known = log_ratio is not None and isfinite(log_ratio)
    return round(exp(min(log_ratio, 50.0)) - 1, 6) if known and log_ratio is not None else None


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _architectures(every: Sequence[_Sent]) -> dict[str, int]:
    number: Counter[str] = Counter()
    for one in every:
        for part in one.document["architectures"]:
            number[part["architecture"]] += part["deployments"]
    return dict(sorted(number.items()))


def _cells(every: Sequence[_Sent], part: str) -> dict[str, int]:
    """Sums over fleets; what a fleet withheld, since it was 1 to 4, adds nothing."""
    names = sorted({name for one in every for name in one.document[part]})
    return {name: _total(one.document[part][name] for one in every) for name in names}


def _total(cells: Iterable[int | None]) -> int:
    return sum(cell for cell in cells if cell is not None)
