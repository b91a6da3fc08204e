# SPDX-License-Identifier: Apache-2.0
"""Observe first: what a deployment showed to be, once both halves ran and moved something, and what it still lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, select, update

from kvflags.features import Feature
from kvflags.flags import Facts, Flag, Refusal, Role, RuleClass
from kvflags_collector.rollout import declared, leases
from kvflags_collector.rollout.declared import Declaration
from kvflags_collector.store.control_tables import deployments
from kvflags_collector.times import SECOND, lasting

__all__ = ["Observed", "changed", "disqualified", "facts_of", "lacking", "observe", "observed", "quiet", "seen"]

# What a registering engine must have in common with what was observed for its role. `lab` is left out on purpose.
STATIC = ("vllm", "nixl", "backend", "block_size", "tp", "isolation")

_ONE_EACH: Mapping[str, int] = {Role.PREFILL: 1, Role.DECODE: 1}

# {role: facts of each engine, without repetitions}
Observed = dict[str, list[Facts]]


def observe(conn: Connection, deployment: str, quiet_s: float, now: int) -> bool:
    """Write down what the deployment's newest complete generation shows; whether anything changed.

    A generation once observed is kept up to date with every engine that joins it; a newer one takes over when it is
    complete in itself (see `lacking`), so that a rolling start never leaves the deployment unobserved.
    """
    row = conn.execute(select(deployments).where(deployments.c.id == deployment)).mappings().one()
    living, wanted = leases.live_engines(conn, now, deployment), declared.of(conn, deployment).engines
    for generation in _newest_first(living):
        mine = [engine for engine in living if engine["generation"] == generation]
        known = generation == row["observed_generation"]
        if _absent(mine, _ONE_EACH) if known else lacking(mine, quiet_s, now, wanted):
            continue
        return _write(conn, row, generation, mine, now)
    return False


def lacking(living: Sequence[RowMapping], quiet_s: float, now: int, wanted: Mapping[str, int] | None = None) -> str:
    """What is still missing before these engines count as observed, in words; empty when nothing is.

    `wanted`: how many engines of each role make the deployment complete, one each unless the operator said more.
    """
    if absent := _absent(living, wanted or _ONE_EACH):
        return absent
    newest = max(engine["first_us"] for engine in living)
    if now - newest < quiet_s * SECOND:
        quiet = lasting(round(quiet_s * SECOND))
        return f"the newest engine joined {lasting(now - newest)} ago, {quiet} of quiet needed"
    if not sum(engine["ok"] for engine in living):
        return "no transfer seen yet"
    return ""


def observed(stored: Mapping[str, Any] | None) -> Observed:
    """The observation as stored in `deployments.observed`; empty for none."""
    return {role: [facts_of(facts) for facts in seen] for role, seen in (stored or {}).items()}


def seen(conn: Connection, row: RowMapping, stated: Declaration, now: int) -> Observed:
    """What a deployment (its row) is known to be: as observed; where its operator vouches for it, as it registers.

    What the operator states fills in what engines do not know themselves.
    """
    known = observed(row["observed"])
    if not known and stated.waives:
        for registration in leases.live_registrations(conn, now, row["id"]):
            known.setdefault(registration["role"], []).append(facts_of(registration["facts"]))
    return {role: [stated.over(facts) for facts in each] for role, each in known.items()}


def disqualified(feature: Feature, seen: Observed) -> tuple[Refusal, ...]:
    """Every reason why no engine of this deployment may be treated: rules that any of them meets, facts not shared."""
    every = [facts for facts_of_role in seen.values() for facts in facts_of_role]
    met = {refusal.code: refusal for facts in every for refusal in feature.refusals(facts)}
    unlike = [name for name in (*feature.must_match, "isolation") if len({getattr(f, name) for f in every}) > 1]
    if unlike:
        says = f"Its engines differ in {', '.join(unlike)}"
        met["engines_differ"] = Refusal("engines_differ", RuleClass.UNSUPPORTED, says)
    return tuple(met.values())


def changed(seen: Observed, role: str, facts: Facts) -> tuple[str, ...]:
    """Static facts of a registering engine that were not observed for its role; null means as observed."""
    before = seen.get(role, [])
    if seen and not before:
        return ("role",)
    known = [name for name in STATIC if getattr(facts, name) is not None]
    return tuple(name for name in known if before and getattr(facts, name) not in {getattr(b, name) for b in before})


def facts_of(document: Mapping[str, Any]) -> Facts:
    """Facts out of a JSON column."""
    return Facts.from_json(document)


def _absent(living: Sequence[RowMapping], wanted: Mapping[str, int]) -> str:
    here = {role: sum(engine["role"] in {role, Role.BOTH} for engine in living) for role in wanted}
    if missing := [role for role, number in here.items() if not number]:
        return f"no {' and no '.join(missing)} engine heartbeats"
    short = [f"{here[role]} of {number} {role} engines" for role, number in wanted.items() if here[role] < number]
    return f"{' and '.join(short)} heartbeat" if short else ""


def _newest_first(living: Sequence[RowMapping]) -> list[str]:
    began: dict[str, int] = {}
    for engine in living:
        began.setdefault(engine["generation"], engine["first_us"])
    return sorted(began, key=lambda generation: (began[generation], generation), reverse=True)


def _write(conn: Connection, row: RowMapping, generation: str, living: Sequence[RowMapping], now: int) -> bool:
    seen = _by_role(living)
    if row["observed"] == seen and row["observed_generation"] == generation:
        return False
    values = {"observed": seen, "observed_us": now, "observed_generation": generation}
    if row["baseline_us"] is None or _static(row["observed"]) != _static(seen):
        # The baseline is that of the present facts: a new release has to show its own.
        values["baseline_us"] = now
    conn.execute(update(deployments).where(deployments.c.id == row["id"]).values(**values))
    return True


def _by_role(living: Iterable[RowMapping]) -> dict[str, list[dict[str, Any]]]:
    seen: dict[str, dict[str, dict[str, Any]]] = {}
    for engine in living:
        facts = facts_of(engine["facts"]).to_json()
        seen.setdefault(engine["role"], {})[json.dumps(facts, sort_keys=True)] = facts
    return {role: [seen[role][text] for text in sorted(seen[role])] for role in sorted(seen)}


def _static(seen: Mapping[str, list[dict[str, Any]]] | None) -> set[tuple[Any, ...]]:
    return {(role, *(facts.get(name) for name in STATIC)) for role, each in (seen or {}).items() for facts in each}


def quiet(known: Iterable[Flag]) -> float:
    """How long no new engine may have joined, in seconds: the shortest that any flag asks for."""
    return min((flag.quiet_s for flag in known), default=600)
