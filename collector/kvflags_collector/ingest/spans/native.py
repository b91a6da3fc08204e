# SPDX-License-Identifier: Apache-2.0
"""Reading a body with ptars: protobuf to Arrow in Rust, then numpy over Arrow's buffers. No Python per attribute.

Safe to run in any thread. ptars is young (0.0.x), so it is held to `fallback` by property tests, and what it refuses
is read again there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from ptars import HandlerPool

from kvflags_collector.ingest.spans import fallback
from kvflags_collector.ingest.spans.arrow import Array, Slices, bits, flat, ints, present, sizes, values
from kvflags_collector.ingest.spans.residue import ATTRIBUTES, EVENTS, clean
from kvflags_collector.ingest.spans.schema import KEY_VALUE, REQUEST
from kvflags_collector.ingest.spans.slots import COLUMNS, LONGEST_LABEL, SPAN_SLOTS
from kvflags_collector.ingest.spans.wire import RESIDUE, Entries, Ints, Parts, Wire

__all__ = ["read"]

_pool = HandlerPool([REQUEST.file])
_REQUEST, _KEY_VALUE = _pool.get_for_message(REQUEST), _pool.get_for_message(KEY_VALUE)
_NUMBERS = {name.encode(): (COLUMNS.index(slot), slot.kind) for name, slot in SPAN_SLOTS.items()}
_KINDS = ("string_value", "int_value", "bool_value")
_ALL_KINDS = (*_KINDS, "double_value", "array_value", "kvlist_value", "bytes_value")


def read(body: bytes) -> Wire:
    """The spans of an ExportTraceServiceRequest, as `fallback.read` gives them.

    Raises:
        ValueError: the body is no such message, or one that ptars cannot read.
    """
    resources, _ = flat(_REQUEST.list_to_record_batch([body]).column("resource_spans"))
    scopes, scope_owner = flat(resources.field("scope_spans"))
    spans, scope_of = flat(scopes.field("spans"))
    names = spans.field("name").dictionary_encode()
    status = spans.field("status")
    attributes = _Attributes(spans.field("attributes"))
    return Wire(
        resources=list(Slices(resources.field("resource"))),
        resource_of=scope_owner[scope_of],
        scopes=list(Slices(present(scopes.field("scope"), "name"))),
        scope_of=scope_of,
        trace_ids=Slices(spans.field("trace_id")).bytearrays(),
        span_ids=Slices(spans.field("span_id")).bytearrays(),
        names=list(Slices(names.dictionary)),
        name_of=ints(names.indices),
        kind=ints(spans.field("kind")),
        status=ints(present(status, "code")),
        start=values(spans.field("start"), np.uint64),
        end=values(spans.field("end"), np.uint64),
        owner=attributes.owner,
        entry=attributes.entry,
        entries=attributes.entries,
        dropped=ints(spans.field("dropped_attributes")) + attributes.dropped,
        parts=_parts(spans, present(status, "message")),
    )


class _Attributes:
    """The attributes of all spans, the first 128 of each."""

    def __init__(self, lists: Array) -> None:
        lengths = sizes(lists)
        kept = np.minimum(lengths, ATTRIBUTES)
        self.dropped: Ints = lengths - kept
        self.owner: Ints = np.repeat(np.arange(len(lists)), kept)
        items = lists.values
        if self.dropped.any():
            # Nothing else is made of the others: a span may have millions.
            begin = np.cumsum(lengths) - lengths - (np.cumsum(kept) - kept)
            items = items.take(pa.array(begin[self.owner] + np.arange(len(self.owner))))
        encoded = items.dictionary_encode()
        self.entry: Ints = ints(encoded.indices)
        self.entries = _entries(encoded.dictionary)


def _entries(distinct: Array) -> Entries:
    """What `fallback.entry` makes of each of these KeyValue messages, but of all at once."""
    raw = Slices(distinct)
    try:
        batch = _KEY_VALUE.array_to_record_batch(distinct)
    except ValueError:
        # One of them is damaged: find out which.
        return fallback.entries(raw, map(fallback.entry, raw))
    value = batch.column("value")
    is_set = {kind: bits(value.field(kind), 0) for kind in _ALL_KINDS}
    number, wanted = _columns(batch.column("key"))
    single = sum(flags.astype(np.int8) for flags in is_set.values()) == 1
    fits = {kind: (wanted == at) & is_set[kind] & single for at, kind in enumerate(_KINDS)}
    numbers = np.where(fits["bool_value"], bits(value.field("bool_value"), 1), ints(value.field("int_value")))
    made = Entries(raw, np.full(len(raw), RESIDUE, np.int64), numbers, np.full(len(raw), None, object))
    numeric = (fits["int_value"] & (numbers >= 0)) | fits["bool_value"]
    made.slot[numeric] = number[numeric]
    _put_texts(made, number, np.flatnonzero(fits["string_value"]), Slices(value.field("string_value")))
    return made


def _columns(keys: Array) -> tuple[Ints, Ints]:
    """Of each attribute, by its key: the number of its column, and the place in _KINDS of the type it must have."""
    encoded = keys.dictionary_encode()
    found = [_NUMBERS.get(key, (RESIDUE, "")) for key in Slices(encoded.dictionary)]
    numbers = np.array([number for number, _ in found], np.int64)
    kinds = np.array([_KINDS.index(kind) if kind else -1 for _, kind in found], np.int64)
    at = ints(encoded.indices)
    return numbers[at], kinds[at]


def _put_texts(made: Entries, number: Ints, places: Ints, found: Slices) -> None:
    for place in places.tolist():
        try:
            text = clean(found[place].decode())
        except UnicodeDecodeError:
            continue
        if len(text) <= LONGEST_LABEL:
            made.slot[place], made.text[place] = number[place], text


def _parts(spans: Array, messages: Array) -> dict[int, Parts]:
    texts = (spans.field("trace_state"), spans.field("parent_span_id"), messages)
    lists = (spans.field("events"), spans.field("links"))
    some = np.zeros(len(spans), bool)
    for column in (*texts, *lists):
        some |= sizes(column) > 0
    # One scalar after the other, since few spans have any.
    return {
        at: Parts(
            *(text[at].as_py() for text in texts),
            *(tuple(many[at].values[:EVENTS].to_pylist()) for many in lists),
            *(max(0, len(many[at].values) - EVENTS) for many in lists),
        )
        for at in np.flatnonzero(some).tolist()
    }
