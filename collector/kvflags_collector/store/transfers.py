# SPDX-License-Identifier: Apache-2.0
"""From the spans of ranks to transfers. Pure: no clock, no database.

A transfer is what one request moved between two engines: the group of its ranks' spans. It counts in the minute of its
earliest rank, under that rank's labels. With one rank, each span is a transfer. A day is frozen a day after its end: a
span received later is counted as late, by itself, and is no part of a transfer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from kvflags.telemetry.failures import FailureKind
from kvflags_collector.store.sampling import weight

__all__ = ["Key", "Rank", "Transfer", "transfers"]

_STATUS_ERROR = 2
_KINDS = frozenset(kind.value for kind in FailureKind)
_DAY_NS, _DAY_US = 86_400 * 10**9, 86_400 * 10**6
# By total payload, which the layout does not change (descriptors it does), in bytes.
_SIZES = (1 << 16, 1 << 20, 1 << 24)
_SIZE_CLASSES = ("64Ki", "1Mi", "16Mi", "more")


class Rank(NamedTuple):
    """One `kv.transfer` span, as far as roll-ups look at it; named and ordered as columns of `spans`."""

    start_ns: int
    trace_id: bytes
    span_id: bytes
    end_ns: int
    status: int
    error_type: str | None
    arm: str
    deployment: str
    generation: str
    epoch: int
    engine_id: str
    mode: str | None
    rank: int | None
    world_size: int | None
    bytes: int | None
    descriptors: int | None
    blocks: int | None
    post_ns: int | None
    backend: str
    received_us: int
    trace_state: str | None


class Key(NamedTuple):
    """What a roll-up row is kept by, beside its minute."""

    deployment: str
    generation: str
    epoch: int
    engine_id: str
    arm: str
    direction: str
    size_class: str
    backend: str


class Transfer(NamedTuple):
    """Sums over the ranks; `post_ns` is the slowest rank's, None where none told it.

    error: the failure kind of the earliest failed rank, None where none failed. complete: all its ranks were seen.
    weight: how many transfers it stands for. late: a span that came after its day was frozen.
    """

    key: Key
    start_ns: int
    complete: bool
    error: str | None
    duration_ns: int
    bytes: int
    descriptors: int
    blocks: int
    post_ns: int | None
    weight: int = 1
    late: bool = False


def transfers(ranks: Iterable[Rank]) -> Iterator[Transfer]:
    """The transfers that these spans are parts of, and those that came too late, whatever order they come in."""
    groups: dict[tuple[str, bytes], list[Rank]] = {}
    # In order of their starts; two that are the same up to there come from clocks that were corrected.
    for rank in sorted(ranks, key=itemgetter(0, 1, 2)):
        if (rank.world_size or 1) <= 1 or _is_late(rank):
            yield _alone(rank)
        else:
            groups.setdefault((rank.deployment, rank.trace_id), []).append(rank)
    yield from map(_transfer, groups.values())


def _is_late(rank: Rank) -> bool:
    frozen_us = (rank.start_ns // _DAY_NS + 2) * _DAY_US
    return rank.received_us >= frozen_us


def _alone(rank: Rank) -> Transfer:
    """The usual case, in a third of the time: what it spares is most of what a roll-up costs."""
    return Transfer(
        _key(rank, rank.bytes),
        rank.start_ns,
        (rank.world_size or 1) <= 1,
        _error(rank) if rank.status == _STATUS_ERROR else None,
        max(0, rank.end_ns - rank.start_ns),
        rank.bytes or 0,
        rank.descriptors or 0,
        rank.blocks or 0,
        rank.post_ns,
        weight(rank.trace_state, rank.trace_id) if rank.trace_state else 1,
        _is_late(rank),
    )


def _transfer(ranks: Sequence[Rank]) -> Transfer:
    """Of ranks in order of their starts."""
    first = ranks[0]
    if len(ranks) == 1:
        return _alone(first)
    sizes = [rank.bytes for rank in ranks if rank.bytes is not None]
    posts = [rank.post_ns for rank in ranks if rank.post_ns is not None]
    return Transfer(
        key=_key(first, sum(sizes) if sizes else None),
        start_ns=first.start_ns,
        complete=len({rank.rank for rank in ranks}) >= (first.world_size or 1),
        error=next((error for error in map(_error, ranks) if error), None),
        # An engine whose clock is set back during a transfer would report less than nothing.
        duration_ns=max(0, max(rank.end_ns for rank in ranks) - first.start_ns),
        bytes=sum(rank.bytes or 0 for rank in ranks),
        descriptors=sum(rank.descriptors or 0 for rank in ranks),
        blocks=sum(rank.blocks or 0 for rank in ranks),
        post_ns=max(posts, default=None),
        # A failed rank is exported whatever the sampling, so a transfer that has one stands for itself alone.
        weight=min(weight(rank.trace_state, rank.trace_id) for rank in ranks),
    )


def _error(rank: Rank) -> str | None:
    """The failure kind; kinds that nobody knows are one, or a client could make roll-ups of any length."""
    if rank.status != _STATUS_ERROR:
        return None
    return rank.error_type if rank.error_type in _KINDS else FailureKind.OTHER.value


def _key(first: Rank, size: int | None) -> Key:
    size_class = "" if size is None else _SIZE_CLASSES[bisect_left(_SIZES, size)]
    labels = (first.deployment, first.generation, first.epoch, first.engine_id, first.arm)
    return Key(*labels, first.mode or "", size_class, first.backend)
