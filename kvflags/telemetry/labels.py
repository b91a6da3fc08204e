# SPDX-License-Identifier: Apache-2.0
"""What is the same on every span of a worker: its identity, the decision in force, and the layout it registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvflags import __version__
from kvflags.flags import Decision, Facts, Variant
from kvflags.telemetry.attributes import Name

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

__all__ = ["Engine", "Identity", "Labels", "Layout", "front_end_labels", "labels"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Requested, resolved and effective are three values: a request can be dropped, and a layout can do nothing.

    `regions` and `layers` are counts on one rank.
    """

    requested: str | None
    resolved: str | None
    regions: int
    layers: int
    effective: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose engine this is; `id` is its own."""

    id: str
    deployment: str | None
    generation: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Identity):
    """Who this worker is. `rank` counts from 0 within the engine of `world_size` ranks; `mode` is `pull` or `push`."""

    mode: str
    rank: int
    world_size: int


@dataclass(frozen=True, slots=True)
class Labels:
    """Attributes by name, for the resource and for every span or data point. `engine_id` and `rank` go into the ids."""

    engine_id: str
    rank: int
    resource: Mapping[str, AttributeValue] = field(default_factory=dict)
    span: Mapping[str, AttributeValue] = field(default_factory=dict)


def labels(engine: Engine, decision: Decision | None, facts: Facts, layout: Layout) -> Labels:
    """A worker's. What is not known stays absent, never a made-up value."""
    span = {
        **_decision(decision),
        Name.CONTEXT: engine.deployment,
        Name.EFFECTIVE: layout.effective,
        Name.RANK: engine.rank,
        Name.WORLD_SIZE: engine.world_size,
        Name.MODE: engine.mode,
        Name.ROLE: engine.role,
    }
    return Labels(engine.id, engine.rank, _known(_resource(engine, decision, facts) | _layout(layout)), _known(span))


def front_end_labels(engine: Identity, decision: Decision | None, facts: Facts) -> Labels:
    """A front end's, for the outcomes of one of its engines: no layout, and a backend only where one was named."""
    point = {**_decision(decision), Name.CONTEXT: engine.deployment, Name.ROLE: engine.role}
    return Labels(engine.id, 0, _known(_resource(engine, decision, facts)), _known(point))


def _resource(engine: Identity, decision: Decision | None, facts: Facts) -> dict[str, AttributeValue | None]:
    return {
        Name.DEPLOYMENT: engine.deployment,
        Name.GENERATION: engine.generation,
        Name.EPOCH: decision.epoch if decision else None,
        Name.ENGINE: engine.id,
        Name.KVFLAGS_VERSION: __version__,
        **_facts(facts),
    }


def _decision(decision: Decision | None) -> dict[str, AttributeValue | None]:
    if decision is None:
        return {Name.VARIANT: Variant.OFF.value}
    return {
        Name.FLAG: decision.flag or None,
        Name.VARIANT: str(decision.variant),
        Name.FLAG_VERSION: str(decision.revision),
        Name.ARM: str(decision.arm) if decision.arm else None,
    }


def _facts(facts: Facts) -> dict[str, AttributeValue | None]:
    return {
        Name.VLLM_VERSION: facts.vllm,
        Name.NIXL_VERSION: facts.nixl,
        Name.BACKEND: facts.backend,
        Name.BLOCK_SIZE: facts.block_size,
        Name.KV_HEADS: facts.kv_heads_per_rank,
        Name.TP: facts.tp,
        Name.PP: facts.pp,
        Name.DP: facts.dp,
        Name.ARCHITECTURE: facts.architecture,
        Name.MODEL_CLASS: facts.model_class,
        Name.DTYPE: facts.kv_cache_dtype,
        Name.GPU: facts.gpu,
        Name.TRANSPORT: facts.transport,
        Name.LAB: True if facts.lab else None,
    }


def _layout(layout: Layout) -> dict[str, AttributeValue | None]:
    return {
        Name.LAYOUT_REQUESTED: layout.requested,
        Name.LAYOUT_RESOLVED: layout.resolved,
        Name.REGIONS: layout.regions,
        Name.LAYERS: layout.layers,
    }


def _known(values: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in values.items() if value is not None}
