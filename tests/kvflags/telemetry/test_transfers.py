# SPDX-License-Identifier: Apache-2.0
"""Spans, whole: ids, times, status and every attribute of the table, as they stand in the request."""

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvflags import __version__
from kvflags.flags import Arm, Comparison, Decision, Facts, Variant
from kvflags.telemetry.attributes import ATTRIBUTES, Name
from kvflags.telemetry.failures import FailureKind
from kvflags.telemetry.labels import Engine, Labels, Layout, labels
from kvflags.telemetry.records import Transfer
from kvflags.telemetry.transfers import Spans, encode, span_id, trace_id

ENGINE = Engine(id="engine-d", deployment="c/ns/d", generation="r41", role="decode", mode="pull", rank=1, world_size=2)
DECISION = Decision(
    feature="cross_layer_blocks", flag="clb", variant=Variant.ON, arm=Arm.TREATMENT, comparison=Comparison.INCLUDED,
    reason="arm", revision=3, epoch=2,
)  # fmt: skip
FACTS = Facts(
    vllm="0.32.0", nixl="1.5.1", model_class="gqa", architecture="LlamaForCausalLM", backend="FLASH_ATTN",
    block_size=16, kv_heads_per_rank=4, tp=2, kv_cache_dtype="auto", connector="NixlConnector", gpu="H100",
    transport="UCX", lab=True,
)  # fmt: skip
LAYOUT = Layout("BHLNC", "BHLNC", 1, 8, effective=True)
GOOD = Transfer("req-1", "engine-p", "req-p", 5, 1_000_000_000, 1_002_000_000, 4096, 5, 300_000)
BAD = GOOD._replace(
    request="req-2", kind=FailureKind.OTHER, detail="new_kind", layout_mismatch=True, bytes=0, descriptors=0, post_ns=0
)

RESOURCE = {
    Name.SERVICE: "vllm",
    Name.DEPLOYMENT: "c/ns/d",
    Name.GENERATION: "r41",
    Name.EPOCH: 2,
    Name.ENGINE: "engine-d",
    Name.KVFLAGS_VERSION: __version__,
    Name.VLLM_VERSION: "0.32.0",
    Name.NIXL_VERSION: "1.5.1",
    Name.BACKEND: "FLASH_ATTN",
    Name.LAYOUT_REQUESTED: "BHLNC",
    Name.LAYOUT_RESOLVED: "BHLNC",
    Name.REGIONS: 1,
    Name.LAYERS: 8,
    Name.BLOCK_SIZE: 16,
    Name.KV_HEADS: 4,
    Name.TP: 2,
    Name.PP: 1,
    Name.DP: 1,
    Name.ARCHITECTURE: "LlamaForCausalLM",
    Name.MODEL_CLASS: "gqa",
    Name.DTYPE: "auto",
    Name.GPU: "H100",
    Name.TRANSPORT: "UCX",
    Name.LAB: True,
}
SPAN = {
    Name.FLAG: "clb",
    Name.VARIANT: "on",
    Name.FLAG_VERSION: "3",
    Name.CONTEXT: "c/ns/d",
    Name.ARM: "treatment",
    Name.EFFECTIVE: True,
    Name.RANK: 1,
    Name.WORLD_SIZE: 2,
    Name.BYTES: 4096,
    Name.DESCRIPTORS: 5,
    Name.BLOCKS: 5,
    Name.POST_TIME: 300_000,
    Name.MODE: "pull",
    Name.ROLE: "decode",
    Name.REMOTE_ENGINE: "engine-p",
}
FAILED = {Name.ERROR_TYPE: "other", Name.FAILURE: "new_kind", Name.LAYOUT_MISMATCH: True}


def values(attributes) -> dict[str, object]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}


def of_the_sdk(name: str) -> bool:
    return name.startswith("telemetry.sdk.") or name == "service.instance.id"


def exported(*transfers: Transfer, given: Labels | None = None, environ=None):
    """(attributes of the resource, spans) as a collector reads them."""
    spans = Spans(given or labels(ENGINE, DECISION, FACTS, LAYOUT), environ or {}).build(transfers)
    request = ExportTraceServiceRequest.FromString(encode(spans))
    if not request.resource_spans:
        return {}, []
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    assert scope.scope.name == "kvflags"
    return values(resource.resource.attributes), list(scope.spans)


def test_a_good_transfer_whole():
    resource, (span,) = exported(GOOD)
    assert {name: value for name, value in resource.items() if not of_the_sdk(name)} == RESOURCE
    assert values(span.attributes) == SPAN
    assert (span.name, span.kind, span.status.code) == ("kv.transfer", 3, 0)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000_000_000, 1_002_000_000)
    assert span.trace_id == trace_id("engine-d", GOOD).to_bytes(16, "big")
    assert span.span_id == span_id(trace_id("engine-d", GOOD), 1, GOOD.start_ns).to_bytes(8, "big")
    assert span.trace_state == ""


def test_a_failed_one_says_why():
    _, (span,) = exported(BAD)
    moved_nothing = {Name.BYTES: 0, Name.DESCRIPTORS: 0, Name.POST_TIME: 0}
    assert values(span.attributes) == SPAN | moved_nothing | FAILED
    assert (span.status.code, span.status.message) == (2, "other")


def test_every_attribute_of_the_table_is_sent_and_nothing_else():
    resource, (good, bad) = exported(GOOD, BAD)
    assert {name for name in resource if not of_the_sdk(name)} == {
        row.name for row in ATTRIBUTES if row.place == "resource"
    }
    assert values(good.attributes).keys() | values(bad.attributes).keys() == {
        row.name for row in ATTRIBUTES if row.place == "span"
    }


def test_what_is_not_known_is_absent():
    bare = Engine(id="e", deployment=None, generation="default", role="both", mode="push", rank=0, world_size=1)
    layout = Layout(None, "LBHNC", 8, 8, effective=False)
    resource, (span,) = exported(GOOD, given=labels(bare, None, Facts(vllm="0.32.0"), layout))
    absent = {Name.DEPLOYMENT, Name.EPOCH, Name.BACKEND, Name.LAYOUT_REQUESTED, Name.GPU, Name.LAB, Name.BLOCK_SIZE}
    assert not absent & resource.keys()
    attributes = values(span.attributes)
    assert not {Name.FLAG, Name.FLAG_VERSION, Name.ARM, Name.CONTEXT, Name.ERROR_TYPE} & attributes.keys()
    assert attributes[Name.VARIANT] == "off"


def test_ranks_of_one_transfer_share_the_trace_and_not_the_span():
    ids = set()
    for rank in range(2):
        _, (span,) = exported(GOOD, given=Labels("engine-d", rank))
        ids.add((span.trace_id, span.span_id))
    assert len({trace for trace, _ in ids}) == 1
    assert len({span for _, span in ids}) == 2


@pytest.mark.parametrize("field", ["request", "remote_engine", "remote_request"])
def test_another_transfer_has_another_trace(field):
    assert trace_id("e", GOOD) != trace_id("e", GOOD._replace(**{field: "another"}))
    assert trace_id("e", GOOD) != trace_id("f", GOOD)


def test_a_part_of_an_id_cannot_run_into_the_next():
    assert trace_id("e", GOOD._replace(request="ab", remote_engine="c")) != trace_id(
        "e", GOOD._replace(request="a", remote_engine="bc")
    )


def test_bodies_can_be_joined_end_to_end():
    spans = Spans(Labels("e", 0), {})
    joined = encode(spans.build([GOOD])) + encode(spans.build([BAD]))
    request = ExportTraceServiceRequest.FromString(joined)
    assert sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans) == 2


def test_the_hosts_global_provider_stays_as_it_was():
    before = trace.get_tracer_provider()
    exported(GOOD)
    assert trace.get_tracer_provider() is before


def test_resource_attributes_of_the_operator_are_honoured(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=serving")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    resource, _ = exported(GOOD)
    assert (resource["team"], resource["service.name"], resource[Name.DEPLOYMENT]) == ("serving", "chat", "c/ns/d")


def test_a_disabled_sdk_makes_no_spans(monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert Spans(Labels("e", 0), {}).build([GOOD, BAD]) == []
