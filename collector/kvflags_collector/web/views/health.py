# SPDX-License-Identifier: Apache-2.0
"""Whether the data can be believed: one line for each thing that could make the comparison lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from kvflags_collector.verdict.evidence import Minima

__all__ = ["health", "trusted"]

_Line = dict[str, Any]

# Behind by more than two minutes is more than the roll-ups ever are while they work.
_BEHIND_S = 120
# What needs a person first.
_ORDER = ("bad", "warn", "unknown", "good")
_DISTRUSTED = ("sample_ratio_mismatch", "silence", "restart_rates_differ", "left_out")


def health(report: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> list[_Line]:
    """`{id, name, standing, value, says}` each, the worst first; standing: good, warn, bad, or unknown where nothing
    tells yet."""
    return sorted(_lines(report, members), key=lambda one: _ORDER.index(one["standing"]))


def trusted(report: Mapping[str, Any]) -> bool:
    """Whether effects may be read at all: what an invalid comparison measured is shown, and says so."""
    return bool(report["verdict"]["state"] != "invalid")


def _lines(report: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> Iterator[_Line]:
    facts, verdict = report["data_health"], report["verdict"]
    yield _arms(verdict, sum(one["assigned"] for one in members))
    yield _effective(facts["effective_share"])
    mixed = sum(one["ended_at"] is None and one["kind"] == "mixed_generation" for one in report["alarms"])
    yield _count("mixed", "Mixed generations", mixed, "bad", "engines that may be paired hold different layouts")
    silent = sum(one["silent"] for one in members if one["assigned"])
    yield _count("silent", "Silent deployments", silent, "warn", "assigned, and none of their engines was heard today")
    dark = sum("nixl_telemetry_disabled" in one["problems"] for one in members)
    yield _count("telemetry", "Without transfer telemetry", dark, "warn", "NIXL's telemetry is off in their engines")
    yield _count("dropped", "Spans dropped", facts["dropped_spans"], "warn", "engines could not send them")
    yield _count("incomplete", "Incomplete transfers", facts["incomplete"], "warn", "not every rank was heard")
    yield _count("expired", "Expired on prefill", facts["expired"], "warn", "KV blocks that nobody fetched in time")
    differing = sum(one["mismatched"] for one in facts["canaries"].values())
    yield _count("canaries", "Canary mismatches", differing, "bad", "other logprobs from a fetched KV cache")
    yield _behind(report)


def _arms(verdict: Mapping[str, Any], assigned: int) -> _Line:
    if verdict["reason"] in _DISTRUSTED:
        return _line("arms", "Arms as drawn", "bad", "no", verdict["why"][0])
    if verdict["warnings"]:
        return _line("arms", "Arms as drawn", "warn", "in doubt", verdict["warnings"][0])
    if not assigned:
        return _line("arms", "Arms as drawn", "unknown", None, "nobody is assigned to an arm yet")
    return _line("arms", "Arms as drawn", "good", "no mismatch", "sizes and silences of the arms are as drawn")


def _effective(share: float | None) -> _Line:
    least = Minima().effective
    says = f"treated deployments whose engines really registered whole rows; {least:.0%} are needed"
    standing = "unknown" if share is None else "good" if share >= least else "bad"
    return _line("effective", "Effective among treated", standing, None if share is None else f"{share:.0%}", says)


def _behind(report: Mapping[str, Any]) -> _Line:
    made, fresh = (datetime.fromisoformat(report[name]) for name in ("generated_at", "fresh_as_of"))
    behind = max((made - fresh).total_seconds(), 0.0)
    standing = "good" if behind <= _BEHIND_S else "warn"
    value = "up to date" if behind <= _BEHIND_S else f"{behind / 60:,.0f} min behind"
    return _line("fresh", "Rolled up", standing, value, "how far what arrived has been counted")


def _count(name: str, title: str, number: int, standing: str, says: str) -> _Line:
    return _line(name, title, standing if number else "good", f"{number:,}", says)


def _line(name: str, title: str, standing: str, value: str | None, says: str) -> _Line:
    return {"id": name, "name": title, "standing": standing, "value": value, "says": says}
