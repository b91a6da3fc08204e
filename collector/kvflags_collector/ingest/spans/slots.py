# SPDX-License-Identifier: Apache-2.0
"""Which attribute goes to which column of `spans`. An attribute of another type stays in the residue."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from kvflags.telemetry.attributes import Name
from kvflags_collector.ingest.spans.residue import clean

__all__ = ["COLUMNS", "LONGEST_LABEL", "RESOURCE_SLOTS", "SPAN_SLOTS", "Kind", "Slot", "promoted"]

Kind: TypeAlias = Literal["string_value", "int_value", "bool_value"]
_TEXT: Kind = "string_value"
_INT: Kind = "int_value"

# Labels become parts of roll-up keys, and no name of ours is longer; a longer one stays in the residue.
LONGEST_LABEL = 512


class Slot(NamedTuple):
    """A column, by name, and the field of AnyValue that carries its type."""

    column: str
    kind: Kind


SPAN_SLOTS: dict[str, Slot] = {
    Name.ERROR_TYPE: Slot("error_type", _TEXT),
    Name.FLAG: Slot("flag", _TEXT),
    Name.FLAG_VERSION: Slot("flag_version", _TEXT),
    Name.VARIANT: Slot("variant", _TEXT),
    Name.CONTEXT: Slot("deployment", _TEXT),
    Name.ARM: Slot("arm", _TEXT),
    Name.REMOTE_ENGINE: Slot("remote_engine", _TEXT),
    Name.ROLE: Slot("role", _TEXT),
    Name.MODE: Slot("mode", _TEXT),
    Name.RANK: Slot("rank", _INT),
    Name.WORLD_SIZE: Slot("world_size", _INT),
    Name.BYTES: Slot("bytes", _INT),
    Name.DESCRIPTORS: Slot("descriptors", _INT),
    Name.BLOCKS: Slot("blocks", _INT),
    Name.POST_TIME: Slot("post_ns", _INT),
    Name.EFFECTIVE: Slot("effective", "bool_value"),
}
RESOURCE_SLOTS: dict[str, Slot] = {
    Name.DEPLOYMENT: Slot("deployment", _TEXT),
    Name.GENERATION: Slot("generation", _TEXT),
    Name.EPOCH: Slot("epoch", _INT),
    Name.ENGINE: Slot("engine_id", _TEXT),
    Name.BACKEND: Slot("backend", _TEXT),
}

# The columns that span attributes fill; their place here is their number in `wire.Entries.slot`.
COLUMNS: tuple[Slot, ...] = tuple(SPAN_SLOTS.values())


def promoted(slot: Slot, value: AnyValue) -> str | int | None:
    """The value for this column; None where it is of another type, or would spoil a sum or a key."""
    if value.WhichOneof("value") != slot.kind:
        return None
    got = getattr(value, slot.kind)
    if slot.kind == _TEXT:
        return clean(got) if len(got) <= LONGEST_LABEL else None
    # Sizes, counts and times: less than none would be subtracted from a sum.
    return int(got) if got >= 0 else None
