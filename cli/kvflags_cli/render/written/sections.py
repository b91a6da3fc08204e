# SPDX-License-Identifier: Apache-2.0
"""The report laid out, whatever it is written as: sections of sentences and tables, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvflags_cli.render.numbers import ABSENT, amount, count, milliseconds, percent
from kvflags_cli.render.report_effects import effect, named

__all__ = ["Section", "recommendation", "sections", "title"]

Json = dict[str, Any]

_RECOMMENDS = {
    "ready": "make it the default for the scope below, and leave it as it is elsewhere",
    "regression": "roll it back; the default stays off",
    "neutral": "leave the default off: it makes little difference",
    "hold": "none yet: a limit is touched",
    "invalid": "none yet: the arms cannot be compared until something is put right",
    "on_track": "none yet: nothing bad was seen, and nothing is decided",
    "waiting": "none yet: there is not enough evidence",
}
_LEFT_OUT = {
    "changed": "where backend, hardware, release or block size changed with the replacement",
    "no_baseline": "without a generation before",
    "too_little_seen": "with too few hours or transfers seen",
}
_SIGNS = ("positive", "negative", "neutral", "insufficient")
_TOP_REFUSALS = 8


@dataclass(frozen=True, slots=True)
class Section:
    """lines: sentences, before the table. columns empty: no table."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def title(document: Json) -> str:
    """What the whole is called."""
    flag = document["flag"]
    feature = flag["feature"].replace("_", " ").capitalize()
    return f"{feature} ({flag['key']}): field report, {document['generated_at'][:10]}"


def recommendation(document: Json) -> str:
    """In one sentence; of a state that is newer than this command, the state."""
    state = document["verdict"]["state"]
    return f"Recommendation: {_RECOMMENDS.get(state, state)}."


def sections(document: Json) -> Iterator[Section]:
    """Those that have something to say, in the order of reading."""
    parts = (
        _verdict,
        _evidence,
        _outcomes,
        _strata,
        _signals,
        _coverage,
        _errors,
        _restarts,
        _needed,
        _criteria,
        _predicate,
    )
    for part in (*parts, _way_back, _alarms, _feedback, _health, _reproduce):
        section = part(document)
        if section.lines or section.rows:
            yield section


def _verdict(document: Json) -> Section:
    one = document["verdict"]
    lines = [f"{one['state'].upper()} ({one['reason']}).", *one["why"], f"Next: {one['next']}"]
    if one["scope"]:
        lines.append(f"Scope: {'; '.join(one['scope'])}.")
    lines += [f"Returned to control: {', '.join(one['returned'])}."] if one["returned"] else []
    lines += [f"Left out, {name}: {why}" for name, why in one["invalid_strata"].items()]
    return Section("Verdict", (*lines, *one["warnings"], *map(_unknown, document["unknown"])))


def _unknown(what: str) -> str:
    return f"Not known of a past day: {what}."


def _evidence(document: Json) -> Section:
    one = document["evidence"]
    deployments, events = one["deployments"], one["events"]
    lines = [
        f"{deployments['treatment']} treated and {deployments['control']} control deployments,"
        f" {one['excluded']} not compared; {events['treatment']} treated and {events['control']} control events"
        f" ({one['unmatched']} without a control to stand on).",
        *_left_out(one.get("left_out") or {}),
        f"{count(one['transfers'] or 0)} transfers counted, {one['days']:g} days at the minimum share"
        + (f", since {one['since'][:10]}." if one["since"] else "."),
        "Design: drawn per deployment, concurrent controls, analysed as assigned, intervals valid at every look.",
    ]
    ran = [f"{name} {', '.join(found)}" for name, found in one["releases"].items() if found]
    return Section("Evidence", (*lines, *([f"Ran: {'; '.join(ran)}."] if ran else [])))


def _left_out(reasons: Json) -> Iterator[str]:
    """An older collector says nothing of it."""
    if reasons:
        each = (f"{count(number)} {_LEFT_OUT.get(reason, reason)}" for reason, number in reasons.items())
        yield f"Events left out: {'; '.join(each)}."


def _outcomes(document: Json) -> Section:
    rows = [
        (
            named(one),
            *(_level(one, arm) for arm in ("control", "treatment")),
            *effect(one),
            one["limit"],
            one["standing"],
        )
        for one in document["outcomes"]
    ]
    checks = [_descriptors(document)] if rows else []
    columns = ("outcome", "control", "treatment", "change", "interval", "limit", "standing")
    return Section("Outcomes", (), columns, (*rows, *checks))


def _level(one: Json, arm: str) -> str:
    value, unit = one["levels"][arm], one["unit"]
    if value is None:
        return ABSENT
    if unit == "s":
        return milliseconds({"mean": value * 1000}, "mean")
    return percent(value) if unit == "of transfers" else f"{amount(value)} {unit}"


def _descriptors(document: Json) -> tuple[str, ...]:
    """A check of the treatment and no benefit: they fall by construction."""
    by_arm = {arm["arm"]: amount(arm["descriptors_per_transfer"]) for arm in document["arms"]}
    share = percent(document["data_health"]["effective_share"])
    return (
        "check: descriptors per transfer",
        by_arm.get("control", ABSENT),
        by_arm.get("treatment", ABSENT),
        f"effective on {share}",
        ABSENT,
        ABSENT,
        ABSENT,
    )


def _strata(document: Json) -> Section:
    rows = [
        (
            one["name"],
            f"{one['treated']} / {one['control']}",
            *(effect(one["outcomes"][0]) if one["outcomes"] else (ABSENT, ABSENT)),
            _scope(one),
            *(_signs(one["signs"]["measured"], _SIGNS), _signs(one["signs"]["given"], _SIGNS[:2])),
        )
        for one in document["strata"]
    ]
    columns = ("stratum", "treated / control", "time to first token", "interval", "verdict")
    lines = ("Positive / negative / neutral / insufficient: deployments as measured by themselves; given: by people.",)
    return Section("Scopes", lines if rows else (), (*columns, "measured", "given"), tuple(rows))


def _scope(one: Json) -> str:
    if one["ready"]:
        return "default on"
    more = one["more"]
    return one["verdict"] if more is None else f"{one['verdict']} (about {more} more)"


def _signs(counts: Json, names: Sequence[str]) -> str:
    return " / ".join(str(counts[name]) for name in names)


def _signals(document: Json) -> Section:
    measured, given = (document["signs"][name] for name in ("measured", "given"))
    lines = (
        f"Measured of treated deployments by themselves: {_named(measured)}.",
        f"Given by people: {_named(given)}.",
    )
    return Section("Positive and negative", lines)


def _named(counts: Json) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _coverage(document: Json) -> Section:
    one = document["coverage"]
    if one is None:
        return Section("Coverage")
    line = f"The default would take effect on {one['eligible']} of {one['deployments']} deployments"
    line += f" ({percent(one['share'])})." if one["share"] is not None else "."
    rows = tuple((str(each["deployments"]), each["code"], each["says"]) for each in one["refusals"][:_TOP_REFUSALS])
    return Section("Coverage", (line,), ("deployments", "refused by", "because"), rows)


def _errors(document: Json) -> Section:
    rows = tuple(
        (one["kind"], *(_rate(one["arms"].get(arm)) for arm in ("control", "treatment"))) for one in document["errors"]
    )
    return Section("Failures by kind", (), ("kind", "control", "treatment"), rows)


def _rate(rate: Json | None) -> str:
    return ABSENT if rate is None else f"{count(rate['failed'])} ({percent(rate['share'])})"


def _restarts(document: Json) -> Section:
    one = document["restart_cost"]
    if one is None:
        return Section("Restart cost")
    took = (
        f"median {amount(one['minutes'])} min until both roles were back" if one["minutes"] is not None else "not known"
    )
    failed = f"{count(one['failed'])} of {count(one['transfers'])} transfers failed in the hours of the replacement"
    return Section("Restart cost", (f"{one['events']} replacements in both arms: {took}; {failed}.",))


def _needed(document: Json) -> Section:
    rows = tuple(
        (one["says"], ABSENT if one["more"] is None else str(one["more"]), one["about"] or ABSENT)
        for one in document["needed"]
    )
    return Section("Still needed", (), ("what", "more treated deployments", "about"), rows)


def _criteria(document: Json) -> Section:
    met = {True: "met", False: "not met", None: "open"}
    rows = tuple((one["says"], met[one["met"]], one["detail"]) for one in document["criteria"])
    return Section("Declared criteria", (), ("criterion", "", "detail"), rows)


def _predicate(document: Json) -> Section:
    one = document["predicate"]
    if one is None:
        return Section("Predicate of a default")
    return Section(
        "Predicate of a default",
        (one["says"],),
        ("unless", "because"),
        tuple((rule["code"], rule["says"]) for rule in one["unless"]),
    )


def _way_back(document: Json) -> Section:
    return Section("Way back", tuple(document["way_back"]))


def _alarms(document: Json) -> Section:
    rows = tuple((one["kind"], one["says"], one["first_at"], one["ended_at"] or "open") for one in document["alarms"])
    return Section("Alarms", (), ("kind", "what", "since", "until"), rows)


def _feedback(document: Json) -> Section:
    one = document["feedback"]
    rows = tuple(
        (item["id"], item["sign"], item["source"], item["deployment"], ", ".join(item["tags"]), item["comment"])
        for item in one["items"]
    )
    line = f"{one['positive']} positive, {one['negative']} negative, {one['withdrawn']} withdrawn."
    return Section("Feedback", (line,), ("id", "sign", "source", "deployment", "about", "comment"), rows)


def _health(document: Json) -> Section:
    one = document["data_health"]
    return Section(
        "Data health",
        (
            f"Effective among treated: {percent(one['effective_share'])};"
            f" mixed generations: {count(one['mixed_generations'])}.",
            f"Spans dropped: {count(one['dropped_spans'])}; incomplete transfers: {count(one['incomplete'])};"
            f" late: {count(one['late'])}; expired on prefill: {count(one['expired'])}.",
            f"Canary mismatches: {count(sum(found['mismatched'] for found in one['canaries'].values()))}.",
        ),
    )


def _reproduce(document: Json) -> Section:
    return Section("Reproduce", (f"{document['reproduce']} (schema {document['schema']}).",))
