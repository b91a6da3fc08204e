# SPDX-License-Identifier: Apache-2.0
"""The shapes of OFREP 0.3.0 as JSON Schema, for our OpenAPI document and for the tests that hold answers against them.

Written from the protocol's description (open-feature/protocol, `service/openapi.yaml`, Apache-2.0, and ADR 6 for the
absent `value`), not copied from it; stricter than that where clients are: they fail on an answer without `variant`, on
a reason outside the list, and on a refusal without `errorDetails`.
"""

from __future__ import annotations

from typing import Any

from kvflags_collector.api.schemas.fields import NAME

__all__ = ["BULK", "REQUEST", "SINGLE"]

_Schema = dict[str, Any]

_TEXT: _Schema = {"type": "string"}
_METADATA: _Schema = {"type": "object", "additionalProperties": {"type": ["boolean", "string", "number"]}}
_SUCCESS: _Schema = {
    "type": "object",
    "required": ["key", "reason", "variant"],
    "properties": {
        "key": _TEXT,
        "reason": {"enum": ["STATIC", "TARGETING_MATCH", "SPLIT", "DISABLED", "UNKNOWN"]},
        "variant": _TEXT,
        # Absent: the client's own default. All flags of ours are booleans.
        "value": {"type": ["boolean", "string", "number", "object"]},
        "metadata": _METADATA,
    },
}


def _failure(*codes: str, key: bool) -> _Schema:
    properties = {"errorCode": {"enum": list(codes)}, "errorDetails": _TEXT, "metadata": _METADATA}
    needed = ["errorCode", "errorDetails"]
    if not key:
        return {"type": "object", "required": needed, "properties": properties}
    return {"type": "object", "required": ["key", *needed], "properties": {"key": _TEXT, **properties}}


_BAD = ("PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "GENERAL")
_FAILED: _Schema = {"type": "object", "required": ["errorDetails"], "properties": {"errorDetails": _TEXT}}


def _answer(description: str, schema: _Schema, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of OpenAPI
    return {"description": description, "content": {"application/json": {"schema": schema}}, **more}


_AGAIN = {"headers": {"Retry-After": {"description": "seconds", "schema": {"type": "string"}}}}
_BROKEN: dict[int | str, dict[str, Any]] = {
    500: _answer("the collector failed", _FAILED),
    503: _answer("the database is busy or away", _FAILED, **_AGAIN),
}

SINGLE: dict[int | str, dict[str, Any]] = {
    200: _answer("the flag's value, variant and reason", _SUCCESS),
    400: _answer("no context, or none that names a deployment", _failure(*_BAD, key=True)),
    404: _answer("no such flag", _failure("FLAG_NOT_FOUND", key=True)),
    **_BROKEN,
}
_TAG = {"headers": {"ETag": {"description": "of flags and context", "schema": _TEXT}}}
_ALL: _Schema = {
    "type": "object",
    "required": ["flags"],
    "properties": {"flags": {"type": "array", "items": _SUCCESS}, "metadata": _METADATA},
}
BULK: dict[int | str, dict[str, Any]] = {
    200: _answer("all flags", _ALL, **_TAG),
    304: {"description": "neither flags nor context changed", **_TAG},
    400: _answer("no context, or none that names a deployment", _failure(*_BAD, key=False)),
    **_BROKEN,
}


_ID: _Schema = {"type": "string", "minLength": 1, "maxLength": 253, **NAME}
_CONTEXT: _Schema = {
    "type": "object",
    "required": ["targetingKey"],
    "properties": {
        "targetingKey": {**_ID, "description": "the deployment, cluster/namespace/name"},
        "generation": {**_ID, "description": "one of its generations; without it, the newest"},
    },
}
_BODY: _Schema = {"type": "object", "required": ["context"], "properties": {"context": _CONTEXT}}
REQUEST: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}}}
