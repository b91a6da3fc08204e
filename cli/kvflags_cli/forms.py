# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""The forms that data is written in: `-o table|json|yaml|name`. `--json` is `-o json` under its older name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

from kvflags.errors import UsageError

__all__ = ["Form", "asked", "chosen", "names", "written"]

Json = dict[str, Any]


class Form(StrEnum):
    """`name`: what the command's other arguments take, a line each, for loops and xargs."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def chosen(form: Form, *, as_json: bool) -> Form:
    """The one form that was asked for. Raises UsageError where `--json` and `-o` ask for two."""
    if not as_json or form is Form.JSON:
        return form
    if form is not Form.TABLE:
        raise UsageError(f"--json and -o {form} ask for two forms", hint="give one of them")
    return Form.JSON


def asked(arguments: Sequence[str]) -> Form:
    """Read from the arguments themselves, for errors: what went wrong may be that they could not be parsed."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if "--json" in options or _asks(options, Form.JSON):
        return Form.JSON
    return Form.YAML if _asks(options, Form.YAML) else Form.TABLE


def written(document: Json, form: Form) -> str:
    """A document as JSON or YAML, with the line's end."""
    if form is Form.YAML:
        import yaml

        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=float("inf")))
    # Not ASCII only: a reason or an author is shown as it was written. NaN is refused, since JSON has none.
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def names(kind: str, data: Any) -> list[str]:  # noqa: ANN401 - any JSON document
    """What is named in a document of that kind. Raises UsageError for a kind without names."""
    if kind not in _NAMES:
        raise UsageError("there is nothing in it that has a name", hint="-o table, json or yaml")
    return [str(name) for name in _NAMES[kind](data) if name is not None]


def _asks(options: Sequence[str], form: Form) -> bool:
    apart = any(pair in {("-o", form), ("--output", form)} for pair in pairwise(options))
    return apart or f"-o{form}" in options or f"--output={form}" in options


def _each(field: str) -> Callable[[Any], Iterable[Any]]:
    return lambda items: (item[field] for item in items)


def _one(*path: str) -> Callable[[Any], Iterable[Any]]:
    def of(document: Any) -> Iterable[Any]:  # noqa: ANN401 - any JSON document
        for field in path:
            document = document[field]
        yield document

    return of


def _engines(items: Iterable[Json]) -> Iterable[str]:
    return (item["engine_id"] or item["registration_id"] for item in items)


_NAMES: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "config": _each("name"),
    "config_origins": _each("name"),
    "deployment": _one("deployment"),
    "deployments": _each("deployment"),
    "engines": _engines,
    "explanation": _one("deployment"),
    "feedback": _one("id"),
    "feedback_list": _each("id"),
    "flag": _one("key"),
    "flags": _each("key"),
    "fleet_plan": lambda census: (item["deployment"] for item in census["deployments"]),
    # What `rollout undo --to-revision` takes; what was done to a deployment made none.
    "history": lambda items: (item.get("revision") for item in items),
    "organisations": _each("organisation"),
    "restarts": _each("deployment"),
    "rollout_status": _one("flag", "key"),
    "telemetry": lambda document: (payload["kind"] for payload in document["payloads"]),
    "tokens": _each("id"),
}
