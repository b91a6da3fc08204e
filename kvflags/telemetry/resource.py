# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry resource of an engine, on its spans and on its outcomes. For export threads: it imports the SDK."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from kvflags.telemetry.attributes import Name

if TYPE_CHECKING:
    from kvflags.telemetry.labels import Labels

__all__ = ["operators", "resource"]


def resource(labels: Labels) -> Resource:
    """What we know of the engine, over what the operator says of it."""
    return operators().merge(Resource(dict(labels.resource)))


@cache
def operators() -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, read once, and early: at exit the SDK cannot read them.

    The SDK's stand-in for a missing service name is not wanted.
    """
    made = Resource.create()
    if str(made.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        return made.merge(Resource({Name.SERVICE: "vllm"}))
    return made
