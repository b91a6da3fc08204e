# SPDX-License-Identifier: Apache-2.0
"""One request between the wire and the columns: what both readers, `native` and `fallback`, make of a body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["RESIDUE", "Entries", "Ints", "Parts", "Wire"]

Ints: TypeAlias = NDArray[np.int64]

# In the place of a slot: an attribute without a column.
RESIDUE = -1


class Parts(NamedTuple):
    """What a `kv.transfer` span seldom has, as it is on the wire; of events and links the first 128.

    more_events, more_links: how many there are beyond those.
    """

    trace_state: bytes = b""
    parent_span_id: bytes = b""
    message: bytes = b""
    events: tuple[bytes, ...] = ()
    links: tuple[bytes, ...] = ()
    more_events: int = 0
    more_links: int = 0


@dataclass(slots=True)
class Entries:
    """The distinct attributes of a request, each a KeyValue message; all of one length.

    raw: as on the wire. slot: number of the column it goes to, or RESIDUE. number: its value where the column
    is of integers or booleans. text: its value where the column is of text, else None.
    """

    raw: Sequence[bytes]
    slot: Ints
    number: Ints
    text: NDArray[np.object_]


@dataclass(slots=True)
class Wire:
    """The spans of a request, in columns of one length (n) in the order of the wire.

    resources: Resource messages; `resource_of` is each span's. scopes: names of scopes; `scope_of` is each span's.
    trace_ids, span_ids: of any length yet. names: distinct; `name_of` is each span's. start, end: ns since 1970.
    owner, entry: for each attribute kept, its span and its place in `entries`. dropped: attributes that the client, or
    the limit on their number, left out. parts: of the spans that have any.
    """

    resources: list[bytes]
    resource_of: Ints
    scopes: list[bytes]
    scope_of: Ints
    trace_ids: list[bytearray]
    span_ids: list[bytearray]
    names: list[bytes]
    name_of: Ints
    kind: Ints
    status: Ints
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]
    owner: Ints
    entry: Ints
    entries: Entries
    dropped: Ints
    parts: Mapping[int, Parts] = field(default_factory=dict[int, Any])
