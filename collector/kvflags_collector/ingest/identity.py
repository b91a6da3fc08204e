# SPDX-License-Identifier: Apache-2.0
"""Whose metrics and events these are, out of the resource's attributes; what is absent is "" or 0, as on spans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from kvflags.telemetry.attributes import Name

__all__ = ["Identity", "identity"]

# Labels become parts of keys, and no name of ours is longer.
_LONGEST_LABEL = 512


@dataclass(frozen=True, slots=True)
class Identity:
    """Parts of a roll-up's key."""

    deployment: str = ""
    generation: str = ""
    epoch: int = 0
    engine: str = ""
    arm: str = ""

    def with_arm_of(self, attributes: Iterable[KeyValue]) -> Identity:
        """The same with the arm that stands on a data point, where one does."""
        arm = _text(attributes, Name.ARM)
        return replace(self, arm=arm) if arm else self


def identity(attributes: Iterable[KeyValue]) -> Identity:
    """Out of a resource's attributes (KeyValue messages)."""
    return Identity(
        deployment=_text(attributes, Name.DEPLOYMENT),
        generation=_text(attributes, Name.GENERATION),
        epoch=next((max(0, one.value.int_value) for one in attributes if one.key == Name.EPOCH), 0),
        engine=_text(attributes, Name.ENGINE),
        arm=_text(attributes, Name.ARM),
    )


def _text(attributes: Iterable[KeyValue], name: str) -> str:
    found: str = next((one.value.string_value for one in attributes if one.key == name), "")
    # PostgreSQL stores no NUL.
    return found.replace("\0", "\N{REPLACEMENT CHARACTER}") if len(found) <= _LONGEST_LABEL else ""
