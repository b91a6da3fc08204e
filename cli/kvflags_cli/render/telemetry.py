# SPDX-License-Identifier: Apache-2.0
"""What an engine sent last, for people: a line about each payload, then what is in it, cut off where it repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags.inert import inert
from kvflags_cli.payloads import items
from kvflags_cli.render.numbers import count, moment, size
from kvflags_cli.render.tables import heading, pairs

__all__ = ["telemetry"]

Json = dict[str, Any]

# Spans of one batch differ in numbers only, and every name is to be seen: two of them say it all. A batch has 512.
_SPANS = 2
_METRICS = 50
# A registration has 2 kB; what is longer is in the JSON.
_MOST_CHARACTERS = 8_000

_ITEMS = {"traces": "span", "metrics": "metric"}
_RESULTS = {
    "taken": "taken",
    "later": "not taken yet",
    "refused": "refused",
    "kept": "kept on this machine, sent to nobody",
}


def telemetry(document: Json) -> Iterator[RenderableType]:
    if not document["payloads"]:
        yield Text(f"Nothing: no engine on this machine has sent anything, as far as {document['folder']} tells.")
        yield Text("Run this as the engines' user, with KVFLAGS_STATE_DIR or HOME as they have it.")
    for payload in document["payloads"]:
        yield heading(payload["kind"].upper())
        yield pairs(list(_about(payload)))
        if payload["body"] is not None:
            yield from _BODIES.get(payload["kind"], _plain)(payload["body"])


def _about(payload: Json) -> Iterator[tuple[str, str]]:
    yield "to", inert(payload["to"])
    yield "sent", f"{moment(payload['at'])} by process {payload['pid']}"
    yield "result", inert(": ".join(filter(None, (_RESULTS[payload["result"]], payload["says"]))))
    kept = "" if payload["body"] is not None else " (too large to be kept)"
    number = "" if payload["items"] is None else f"{_counted(payload['items'], _ITEMS[payload['kind']])}, "
    yield "holds", f"{number}{size(payload['size'])}{kept}"


def _plain(body: Json) -> Iterator[RenderableType]:
    text = inert(json.dumps(body, indent=2, ensure_ascii=False))
    yield Text(text[:_MOST_CHARACTERS])
    yield from _more(len(text) - _MOST_CHARACTERS, "character")


def _traces(body: Json) -> Iterator[RenderableType]:
    yield from _resources(body["resourceSpans"])
    spans = items("traces", body)
    for span in spans[:_SPANS]:
        yield heading(f"span {inert(span.get('name', ''))}")
        head = [(name, value) for name, value in span.items() if isinstance(value, str) and name != "name"]
        status = [("status", json.dumps(span["status"]))] if span.get("status") else []
        yield _named([*head, *status, *_attributes(span)])
    yield from _more(len(spans) - _SPANS, "span")


def _metrics(body: Json) -> Iterator[RenderableType]:
    yield from _resources(body["resourceMetrics"])
    metrics = items("metrics", body)
    yield heading("metrics, with the data points of each")
    yield _named([(metric.get("name", ""), _points(metric)) for metric in metrics[:_METRICS]])
    yield from _more(len(metrics) - _METRICS, "metric")


def _points(metric: Json) -> str:
    data = next((value for value in metric.values() if isinstance(value, dict)), {})
    return "; ".join(_point(point) for point in data.get("dataPoints", ()))


def _point(point: Json) -> str:
    values = (f"{name} {point[name]}" for name in ("count", "sum", "asInt", "asDouble") if name in point)
    return ", ".join(values)


def _resources(entries: list[Json]) -> Iterator[RenderableType]:
    # One engine's are all alike, chunk for chunk.
    for resource in list({json.dumps(entry.get("resource", {})): entry for entry in entries}.values())[:_SPANS]:
        yield heading("resource")
        yield _named(_attributes(resource.get("resource", {})))


def _attributes(holder: Json) -> list[tuple[str, str]]:
    return [(one.get("key", ""), _value(one.get("value", {}))) for one in holder.get("attributes", ())]


def _value(value: Json) -> str:
    return ", ".join(one if isinstance(one, str) else json.dumps(one) for one in value.values())


def _named(rows: list[tuple[str, str]]) -> RenderableType:
    return pairs([(inert(name), inert(value)) for name, value in rows])


def _more(number: int, what: str) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"\n{_counted(number, f'more {what}')}; --json has all of them.")


def _counted(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


_BODIES = {"traces": _traces, "metrics": _metrics}
