# SPDX-License-Identifier: Apache-2.0
"""The one table of attribute names: what stands on a `kv.transfer` span and on the resource of the engine that sent it.

Engine and collector take every name from here, and `docs/reference/attributes.md` is generated from `ATTRIBUTES`.
`feature_flag.*`, `error.type` and `service.*` are OpenTelemetry's semantic conventions (feature flags: release
candidate, 1.44); everything else is ours, under `kvflags.*`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ATTRIBUTES", "SCOPE_NAME", "SPAN_NAME", "Attribute", "Name"]

SPAN_NAME = "kv.transfer"
SCOPE_NAME = "kvflags"


class Name:
    """The names as constants. On the span unless the table says otherwise."""

    FLAG = "feature_flag.key"
    VARIANT = "feature_flag.result.variant"
    FLAG_VERSION = "feature_flag.version"
    CONTEXT = "feature_flag.context.id"
    ARM = "kvflags.arm"
    EFFECTIVE = "kvflags.effective"
    RANK = "kvflags.rank"
    WORLD_SIZE = "kvflags.world_size"
    BYTES = "kvflags.transfer.bytes"
    DESCRIPTORS = "kvflags.transfer.descriptors"
    BLOCKS = "kvflags.transfer.blocks"
    POST_TIME = "kvflags.transfer.post_time"
    MODE = "kvflags.transfer.mode"
    ROLE = "kvflags.role"
    REMOTE_ENGINE = "kvflags.remote.engine"
    ERROR_TYPE = "error.type"
    FAILURE = "kvflags.failure"
    LAYOUT_MISMATCH = "kvflags.layout.mismatch"

    REASON = "feature_flag.result.reason"
    DROPPED_SPANS = "kvflags.dropped.spans"
    DROPPED_EVENTS = "kvflags.dropped.events"
    EXPIRED = "kvflags.expired.requests"

    FINISH_REASON = "kvflags.finish_reason"

    SERVICE = "service.name"
    DEPLOYMENT = "kvflags.deployment"
    GENERATION = "kvflags.generation"
    EPOCH = "kvflags.epoch"
    ENGINE = "kvflags.engine"
    KVFLAGS_VERSION = "kvflags.version"
    VLLM_VERSION = "kvflags.vllm.version"
    NIXL_VERSION = "kvflags.nixl.version"
    BACKEND = "kvflags.attention.backend"
    LAYOUT_REQUESTED = "kvflags.layout.requested"
    LAYOUT_RESOLVED = "kvflags.layout.resolved"
    REGIONS = "kvflags.layout.regions"
    LAYERS = "kvflags.layout.layers"
    BLOCK_SIZE = "kvflags.block_size"
    KV_HEADS = "kvflags.kv_heads_per_rank"
    TP = "kvflags.parallel.tensor"
    PP = "kvflags.parallel.pipeline"
    DP = "kvflags.parallel.data"
    ARCHITECTURE = "kvflags.model.architecture"
    MODEL_CLASS = "kvflags.model.class"
    DTYPE = "kvflags.kv_cache.dtype"
    GPU = "kvflags.gpu"
    TRANSPORT = "kvflags.transport"
    LAB = "kvflags.lab"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row of the table. `unit` is a UCUM code, empty for names and flags."""

    name: str
    type: Literal["string", "int", "boolean"]
    place: Literal["span", "event", "data point", "resource"]
    meaning: str
    unit: str = ""


def _span(name: str, type_: Literal["string", "int", "boolean"], meaning: str, unit: str = "") -> Attribute:
    return Attribute(name, type_, "span", meaning, unit)


def _event(name: str, type_: Literal["string", "int", "boolean"], meaning: str, unit: str = "") -> Attribute:
    return Attribute(name, type_, "event", meaning, unit)


def _point(name: str, type_: Literal["string", "int", "boolean"], meaning: str, unit: str = "") -> Attribute:
    return Attribute(name, type_, "data point", meaning, unit)


def _resource(name: str, type_: Literal["string", "int", "boolean"], meaning: str, unit: str = "") -> Attribute:
    return Attribute(name, type_, "resource", meaning, unit)


ATTRIBUTES: tuple[Attribute, ...] = (
    _span(Name.FLAG, "string", "The flag whose decision the engine runs under"),
    _span(Name.VARIANT, "string", "`on` or `off`: what the engine was told to do"),
    _span(Name.FLAG_VERSION, "string", "The flag's revision when the decision was pinned"),
    _span(Name.CONTEXT, "string", "The deployment: the unit of assignment"),
    _span(Name.ARM, "string", "`treatment` or `control`; absent outside the comparison"),
    _span(Name.EFFECTIVE, "boolean", "Every rank registered whole rows"),
    _span(Name.RANK, "int", "The worker's rank in its engine, from 0"),
    _span(Name.WORLD_SIZE, "int", "Ranks whose spans make one transfer"),
    _span(Name.BYTES, "int", "Bytes moved by this rank", "By"),
    _span(Name.DESCRIPTORS, "int", "NIXL descriptors after merging of neighbours", "{descriptor}"),
    _span(Name.BLOCKS, "int", "KV blocks moved by this rank", "{block}"),
    _span(Name.POST_TIME, "int", "Time NIXL took to post the transfer", "ns"),
    _span(Name.MODE, "string", "`pull` (decode reads) or `push` (prefill writes)"),
    _span(Name.ROLE, "string", "`prefill`, `decode` or `both`: the side that owns the transfer"),
    _span(Name.REMOTE_ENGINE, "string", "The engine id at the other end"),
    _span(Name.ERROR_TYPE, "string", "The failure kind, on spans with status ERROR"),
    _span(Name.FAILURE, "string", "vLLM's own name of the failure where it is not a known kind"),
    _span(Name.LAYOUT_MISMATCH, "boolean", "The handshake failed because the two sides' layouts differ"),
    _event(Name.REASON, "string", "Why the decision came out so: the reason of the pin"),
    _event(Name.DROPPED_SPANS, "int", "Spans that could not be sent", "{span}"),
    _event(Name.DROPPED_EVENTS, "int", "Events that could not be sent", "{event}"),
    _event(Name.EXPIRED, "int", "Requests whose KV blocks were given up", "{request}"),
    _point(Name.FINISH_REASON, "string", "vLLM's: `stop`, `length`, `abort`, `error` or `repetition`"),
    _resource(Name.SERVICE, "string", "`vllm`"),
    _resource(Name.DEPLOYMENT, "string", "cluster/namespace/name; absent while unidentified"),
    _resource(Name.GENERATION, "string", "The release label that prefill and decode share"),
    _resource(Name.EPOCH, "int", "The pin's number within the generation"),
    _resource(Name.ENGINE, "string", "`kv_transfer_config.engine_id`"),
    _resource(Name.KVFLAGS_VERSION, "string", "This package's version"),
    _resource(Name.VLLM_VERSION, "string", "vLLM's version"),
    _resource(Name.NIXL_VERSION, "string", "NIXL's version"),
    _resource(Name.BACKEND, "string", "The attention backend in use"),
    _resource(Name.LAYOUT_REQUESTED, "string", "The KV-cache layout asked for"),
    _resource(Name.LAYOUT_RESOLVED, "string", "The KV-cache layout vLLM settled on"),
    _resource(Name.REGIONS, "int", "Memory regions registered with NIXL by one rank", "{region}"),
    _resource(Name.LAYERS, "int", "Layers with a KV cache on one rank", "{layer}"),
    _resource(Name.BLOCK_SIZE, "int", "Tokens per KV block", "{token}"),
    _resource(Name.KV_HEADS, "int", "KV heads on one tensor-parallel rank", "{head}"),
    _resource(Name.TP, "int", "Tensor-parallel size"),
    _resource(Name.PP, "int", "Pipeline-parallel size"),
    _resource(Name.DP, "int", "Data-parallel size"),
    _resource(Name.ARCHITECTURE, "string", "The model's architecture class"),
    _resource(Name.MODEL_CLASS, "string", "`gqa`, `mla`, `mla_sparse` or `hybrid`"),
    _resource(Name.DTYPE, "string", "The KV cache's data type"),
    _resource(Name.GPU, "string", "The accelerator's name; absent on CPU"),
    _resource(Name.TRANSPORT, "string", "NIXL's transfer backend, for example `UCX`"),
    _resource(Name.LAB, "boolean", "True on engines of the demo and the tests, absent elsewhere"),
)
