# SPDX-License-Identifier: Apache-2.0
"""From the wire to columns, one request at a time. Pure, and safe to run in any thread.

Every span is kept, also those of other OTLP clients: what has a column goes there, the rest into the residue (JSON),
under its own name or, for parts of a span that are no attributes, under `otel.*`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from kvflags.telemetry.attributes import SPAN_NAME, Name
from kvflags_collector.ingest.spans.leftovers import Leftovers, text
from kvflags_collector.ingest.spans.promote import Columns, promote
from kvflags_collector.ingest.spans.read import read
from kvflags_collector.ingest.spans.refuse import refuse
from kvflags_collector.ingest.spans.residue import compact
from kvflags_collector.ingest.spans.resource import RESOURCE_COLUMNS, Known, resource_of
from kvflags_collector.ingest.spans.took import Took, took
from kvflags_collector.ingest.spans.wire import Wire

__all__ = ["Decoded", "Mismatch", "decode"]

_MINUTE_NS = 60 * 10**9


class Mismatch(NamedTuple):
    """A handshake that failed because the layouts differ, and between whom."""

    deployment: str
    generation: str
    epoch: int
    local_engine: str
    remote_engine: str


@dataclass(slots=True)
class Decoded:
    """One request, ready to be written.

    size: bytes of the body. digest: what names it, to know it again. constants: column -> value of every span; rows:
    the other columns of each span, in the order of `names`; a column in neither is NULL. resources: fingerprint ->
    JSON. minutes: the (minute_us, deployment) that the transfers among the rows make dirty. ranked: trace ids of
    transfers made by several ranks. took: how long the transfers took, None without any. rejected: reason -> spans.
    """

    size: int = 0
    digest: bytes = b""
    names: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    resources: dict[bytes, str] = field(default_factory=dict)
    minutes: set[tuple[int, str]] = field(default_factory=set)
    ranked: set[bytes] = field(default_factory=set)
    mismatches: set[Mismatch] = field(default_factory=set)
    took: Took | None = None
    rejected: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def split(self, rows: int) -> tuple[Decoded, Decoded]:
        """The first so many rows, which have no digest of their own, and the others. Both do all the rest again."""
        return replace(self, rows=self.rows[:rows], digest=b""), replace(self, rows=self.rows[rows:])


def decode(body: bytes, now_ns: int) -> Decoded:
    """The columns of one ExportTraceServiceRequest, received at `now_ns`.

    Raises:
        Refused: 400, where the body is no such message.
    """
    wire = read(body)
    decoded = Decoded(size=len(body), digest=sha256(body).digest()[:16])
    leftovers = Leftovers(wire)
    resources = _resources(wire, leftovers, decoded)
    names = [text(name) for name in wire.names]
    leftovers.unreadable.update(np.flatnonzero(_none(names)[wire.name_of]).tolist())
    kept = refuse(wire, leftovers.unreadable, now_ns, decoded.rejected)
    if kept.any():
        columns = _columns(wire, kept, now_ns)
        columns.coded("name", names, wire.name_of[kept])
        for name, values in resources.items():
            columns.coded(name, values, wire.resource_of[kept])
        promote(wire, kept, columns)
        residues = [leftovers.of.get(at) for at in np.flatnonzero(kept).tolist()] if leftovers.of else []
        _finish(columns, residues, decoded)
    return decoded


def _columns(wire: Wire, kept: NDArray[np.bool_], now_ns: int) -> Columns:
    """The key first, which tables and tests rely on, then the other fields of spans."""
    columns = Columns(int(kept.sum()))
    places = np.flatnonzero(kept).tolist()
    columns.varying["start_ns"] = wire.start[kept].tolist()
    columns.varying["trace_id"] = wire.trace_ids if kept.all() else [wire.trace_ids[at] for at in places]
    columns.varying["span_id"] = wire.span_ids if kept.all() else [wire.span_ids[at] for at in places]
    columns.varying["end_ns"] = wire.end[kept].tolist()
    # Both are open enums: a value that is not defined yet, and may not fit the column, reads as unspecified.
    for name, values, last in (("kind", wire.kind[kept], 5), ("status", wire.status[kept], 2)):
        columns.coded(name, list(range(last + 1)), np.where((values < 0) | (values > last), 0, values))
    columns.constant["received_us"] = now_ns // 1000
    return columns


def _resources(wire: Wire, leftovers: Leftovers, decoded: Decoded) -> dict[str, list[Any]]:
    """Column -> its value for each resource. A resource is stored whole, once, under its fingerprint."""
    columns: dict[str, list[Any]] = {}
    for number, raw in enumerate(wire.resources):
        try:
            known = resource_of(raw)
        except DecodeError:
            leftovers.unreadable.update(np.flatnonzero(wire.resource_of == number).tolist())
            known = Known(b"", "", {})
        else:
            decoded.resources[known.fingerprint] = known.text
        for name in RESOURCE_COLUMNS:
            columns.setdefault(name, []).append(known.columns.get(name))
    return columns


def _finish(columns: Columns, residues: list[dict[str, Any] | None], decoded: Decoded) -> None:
    if any(residues):
        columns.varying["attributes"] = [compact(residue) if residue else None for residue in residues]
    decoded.names = tuple(columns.varying)
    decoded.rows = list(zip(*columns.varying.values(), strict=True))
    decoded.constants = columns.constant
    if columns.constant.get("name") == SPAN_NAME:
        _transfers(columns, residues, range(columns.size), decoded)
    elif "name" in columns.varying:
        ours = [at for at, name in enumerate(columns.varying["name"]) if name == SPAN_NAME]
        _transfers(columns, residues, ours, decoded)


def _transfers(columns: Columns, residues: list[dict[str, Any] | None], at: Sequence[int], decoded: Decoded) -> None:
    """What the transfers, the rows at `at`, make to be done."""
    decoded.minutes = _minutes(columns, at)
    decoded.took = took(columns, at) if at else None
    sizes = columns.values("world_size")
    if "world_size" in columns.varying or (sizes[0] or 1) > 1:
        decoded.ranked = {bytes(columns.varying["trace_id"][row]) for row in at if (sizes[row] or 1) > 1}
    for row in at if residues else ():
        if (residues[row] or {}).get(Name.LAYOUT_MISMATCH) is True:
            decoded.mismatches.add(_mismatch(columns, row))


def _minutes(columns: Columns, at: Sequence[int]) -> set[tuple[int, str]]:
    starts = columns.varying["start_ns"]
    if "deployment" in columns.constant and isinstance(at, range):
        deployment = columns.constant["deployment"]
        minutes = np.unique(np.array(starts) // _MINUTE_NS).tolist()
        return {(minute * 60_000_000, deployment) for minute in minutes}
    deployments = columns.values("deployment")
    return {(starts[row] // _MINUTE_NS * 60_000_000, deployments[row]) for row in at}


def _mismatch(columns: Columns, row: int) -> Mismatch:
    return Mismatch(
        deployment=columns.values("deployment")[row],
        generation=columns.values("generation")[row],
        epoch=columns.values("epoch")[row],
        local_engine=columns.values("engine_id")[row],
        remote_engine=columns.values("remote_engine")[row] or "",
    )


def _none(values: list[str | None]) -> NDArray[np.bool_]:
    return np.array([value is None for value in values], bool)
