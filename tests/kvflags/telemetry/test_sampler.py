# SPDX-License-Identifier: Apache-2.0
"""Which transfers are exported, and what the kept ones stand for."""

import pytest

from kvflags.telemetry.failures import FailureKind
from kvflags.telemetry.labels import Labels
from kvflags.telemetry.records import Transfer
from kvflags.telemetry.sampler import rate
from kvflags.telemetry.transfers import Spans

TRANSFERS = [Transfer(f"r{n}", "p", f"q{n}", 1, 1_000, 2_000) for n in range(2_000)]
QUARTER = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}


def build(environ, transfers=TRANSFERS, rank=0):
    return Spans(Labels("e", rank), environ).build(transfers)


@pytest.mark.parametrize(
    ("sampler", "argument", "share"),
    [
        ("", "", 1.0),
        ("always_on", "0.1", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("always_off", "", 0.0),
        ("traceidratio", "0.25", 0.25),
        (" PARENTBASED_TraceIdRatio ", "0.25", 0.25),
        ("traceidratio", "", 1.0),
        ("traceidratio", "much", 1.0),
        ("traceidratio", "nan", 1.0),
        ("traceidratio", "7", 1.0),
        ("traceidratio", "-1", 0.0),
        ("jaeger_remote", "0.1", 1.0),
    ],
)
def test_the_rate_the_operator_asked_for(sampler, argument, share):
    assert rate({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}) == share


def test_all_are_kept_by_default_and_carry_no_weight():
    spans = build({})
    assert len(spans) == 2_000
    assert {span.context.trace_state.get("ot") for span in spans} == {None}


def test_a_quarter_is_a_quarter_and_says_so():
    spans = build(QUARTER)
    # 2,000 draws at 0.25: 500 with a standard deviation of 19.
    assert 420 < len(spans) < 580
    assert {span.context.trace_state.get("ot") for span in spans} == {"th:c"}
    # The consistent rule: the low 56 bits of a kept trace id are at or over the threshold.
    assert all(span.context.trace_id % 2**56 >= 0xC << 52 for span in spans)


def test_ranks_are_kept_together():
    assert [s.context.trace_id for s in build(QUARTER)] == [s.context.trace_id for s in build(QUARTER, rank=3)]


@pytest.mark.parametrize("environ", [QUARTER, {"OTEL_TRACES_SAMPLER": "always_off"}])
def test_every_error_is_kept_and_stands_for_itself(environ):
    failed = [transfer._replace(kind=FailureKind.TRANSFER_FAILED) for transfer in TRANSFERS[:200]]
    spans = build(environ, failed)
    assert len(spans) == 200
    assert {span.context.trace_state.get("ot") for span in spans} == {"th:0"}


def test_always_off_keeps_nothing_else():
    assert build({"OTEL_TRACES_SAMPLER": "always_off"}) == []
