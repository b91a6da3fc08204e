# SPDX-License-Identifier: Apache-2.0
"""A start, as a whole: what is asked, what holds, in which order, within which time, and what the log says of it."""

import json
import logging
import os
import time
from dataclasses import replace

import pytest

from kvflags._version import __version__
from kvflags.decision import last_heard
from kvflags.decision.carry import Carried
from kvflags.decision.resolve import resolve
from kvflags.decision.signed import Claims, sign
from kvflags.decision.state import State
from kvflags.flags import Decision
from kvflags.sent import Kind, read
from kvflags.signatures import new_key, public_key

KEY = new_key()
NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


def token(**changed) -> str:
    claims = Claims(
        flag="cross-layer-blocks",
        feature="cross_layer_blocks",
        deployment="eu/prod/chat",
        generation="r41",
        epoch=7,
        variant="on",
        arm="treatment",
        comparison="included",
        revision=3,
        expiry=int(time.time()) + 3600,
    )
    return sign(KEY, replace(claims, **changed))


@pytest.fixture
def start(settings, fake_config, facts):
    """Resolve one engine's decision; everything that is not about the test has its usual value."""

    def begin(url=None, *, known=facts, config=None, environ=None, argv=("vllm", "serve"), **named) -> Carried:
        given = (
            named
            if url is None or "KVFLAGS_ON_UNREACHABLE" in named
            else {"KVFLAGS_ON_UNREACHABLE": "wait:0.3"} | named
        )
        return resolve(
            settings(url, **given),
            config or fake_config(),
            static_facts=lambda config, settings: known,
            environ={} if environ is None else environ,
            argv=argv,
        )

    return begin


@pytest.fixture
def telling(collector, decided):
    """The collector, answering registrations with this decision (or with none)."""

    def tell(*decisions: dict | None, heartbeat_s: float = 5) -> str:
        told = [decided] if not decisions else [decision for decision in decisions if decision]
        collector.answer = lambda path, body: (200, {"decisions": told, "heartbeat_s": heartbeat_s})
        return collector.url

    return tell


def heard_before(settings, decision: dict) -> None:
    last_heard.remember(State.of(settings(NOWHERE)), Decision.from_json(decision), [])


def summary(carried: Carried) -> tuple[str, str, str, bool]:
    return carried.variant, carried.source, carried.reason, carried.registered


def test_a_registration_as_it_is_sent_and_what_is_carried(start, telling, collector, decided, facts) -> None:
    carried = start(telling())
    body = {
        "registration_id": carried.registration_id,
        "deployment": "eu/prod/chat",
        "generation": "r41",
        "role": "prefill",
        "features": ["cross_layer_blocks"],
        "kvflags": __version__,
        "deaths": 0,
        "running": None,
        "local": None,
        "facts": facts.to_json(),
        "presented": None,
        "problems": [],
        "refused": None,
        "refused_code": None,
    }
    assert collector.requests == [("/api/v1/engines/register", body)]
    assert carried == Carried(
        source="registered",
        reason="assigned",
        registration_id=carried.registration_id,
        decision=Decision.from_json(decided),
        registered=True,
        registration=body,
        url=collector.url,
        heartbeat_s=5.0,
        problems=(),
    )


def test_the_token_is_sent_and_not_carried(start, telling, collector) -> None:
    carried = start(telling(), KVFLAGS_TOKEN="tok-7f")
    assert collector.headers[0]["Authorization"] == "Bearer tok-7f"
    assert "tok-7f" not in repr(carried.to_json())


def test_without_a_flag_or_an_identity_an_engine_is_only_observed(start, telling) -> None:
    url = telling(None)
    assert summary(start(url)) == ("off", "registered", "no_flag", True)
    carried = start(url, KVFLAGS_DEPLOYMENT="\n")
    assert summary(carried) == ("off", "registered", "unidentified", True)
    assert (carried.deployment, carried.problems) == (None, ("KVFLAGS_DEPLOYMENT",))


def test_without_a_collector_nothing_is_asked(start) -> None:
    carried = start()
    assert (summary(carried), carried.url) == (("off", "fallback", "no_collector", False), None)


def test_local_asks_nobody_and_keeps_what_it_decided(start, telling, collector, tmp_path) -> None:
    carried = start(telling(), KVFLAGS_TELEMETRY="local")
    here = (tmp_path / "state" / "local").as_uri()
    assert (summary(carried), carried.url) == (("off", "fallback", "telemetry_local", False), here)
    assert collector.requests == []
    kept = read(str(tmp_path / "state"), Kind.REGISTRATION)
    assert (kept.to, kept.result) == (here, "kept")
    assert Carried.from_json(json.loads(kept.body)) == carried


def test_local_follows_the_pin_that_was_heard_before(start, telling, collector) -> None:
    url = telling()
    pinned = start(url)
    asked = len(collector.requests)
    kept = start(url, KVFLAGS_TELEMETRY="local")
    assert (summary(kept), kept.decision) == (("on", "last_heard", "assigned", False), pinned.decision)
    assert len(collector.requests) == asked


def test_local_without_a_folder_is_told_and_keeps_nothing(start, caplog) -> None:
    carried = start(KVFLAGS_TELEMETRY="local", KVFLAGS_STATE_DIR="", HOME="")
    assert (carried.url, carried.problems) == (None, ("KVFLAGS_TELEMETRY",))
    assert "there is no folder to keep it in; hint: set KVFLAGS_STATE_DIR" in caplog.text


# The order: registered, handed out, last heard, off.


def test_nobody_answers(start) -> None:
    carried = start(NOWHERE)
    assert summary(carried) == ("off", "fallback", "unreachable", False)
    assert carried.problems == ("unreachable",)


def test_the_registered_pin_comes_before_what_was_handed_out(start, telling, collector, decided) -> None:
    url = telling(decided | {"variant": "off", "arm": "control"})
    handed = token()
    carried = start(url, KVFLAGS_DECISION=handed, KVFLAGS_DECISION_KEY=public_key(KEY))
    assert summary(carried) == ("off", "registered", "assigned", True)
    assert collector.bodies()[0]["presented"] == handed


def test_what_was_handed_out_comes_before_what_was_heard(start, settings, decided) -> None:
    heard_before(settings, decided | {"variant": "off", "epoch": 6})
    handed = token()
    carried = start(NOWHERE, KVFLAGS_DECISION=handed, KVFLAGS_DECISION_KEY=public_key(KEY))
    assert summary(carried) == ("on", "handed_out", "handed_out", False)
    assert (carried.decision.epoch, carried.decision.arm, carried.decision.signed) == (7, "treatment", handed)


def test_what_was_heard_comes_before_off_and_is_presented(start, settings, decided, telling, collector) -> None:
    heard_before(settings, decided)
    carried = start(NOWHERE)
    assert summary(carried) == ("on", "last_heard", "assigned", False)
    assert carried.decision == Decision.from_json(decided)
    assert carried.registration["presented"] == decided


def test_what_was_heard_of_another_generation_is_not_followed(start, settings, decided) -> None:
    heard_before(settings, decided)
    assert start(NOWHERE, KVFLAGS_GENERATION="r42").variant == "off"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"KVFLAGS_DECISION": token(deployment="eu/prod/search")}, "is for eu/prod/search r41, not eu/prod/chat r41"),
        ({"KVFLAGS_DECISION": token(generation="r40")}, "is for eu/prod/chat r40, not eu/prod/chat r41"),
        ({"KVFLAGS_DECISION": token(expiry=1)}, "has expired"),
        ({"KVFLAGS_DECISION": token(feature="of_later")}, "knows no feature 'of_later'"),
        ({"KVFLAGS_DECISION": token()[:-4] + "AAAA"}, "was not signed by the owner"),
        ({"KVFLAGS_DECISION": "nonsense"}, "is not a token"),
        ({"KVFLAGS_DECISION": token(), "KVFLAGS_DECISION_KEY": "x"}, "KVFLAGS_DECISION_KEY is not a public key"),
        ({"KVFLAGS_DECISION": token(), "KVFLAGS_DECISION_KEY": ""}, "ignored without KVFLAGS_DECISION_KEY"),
        ({"KVFLAGS_DECISION": token(), "KVFLAGS_DEPLOYMENT": ""}, "ignored without KVFLAGS_DEPLOYMENT"),
    ],
)
def test_a_handed_out_decision_that_does_not_hold_is_an_error_message_and_off(start, caplog, named, says) -> None:
    carried = start(NOWHERE, **({"KVFLAGS_DECISION_KEY": public_key(KEY)} | named))
    assert summary(carried) == ("off", "fallback", "unreachable", False)
    assert "KVFLAGS_DECISION" in carried.problems
    (message,) = (record.message for record in caplog.records if "kvflags: KVFLAGS_DECISION: " in record.message)
    assert says in message
    assert carried.registration["presented"] is None


def test_a_registered_decision_is_there_at_the_next_start(start, telling, collector, decided) -> None:
    url = telling()
    start(url)
    collector.answer = lambda path, body: (500, {})
    assert summary(start(url)) == ("on", "last_heard", "assigned", False)


def test_a_flag_that_is_gone_is_forgotten(start, telling, collector) -> None:
    url = telling()
    start(url)
    telling(None)
    start(url)
    collector.answer = lambda path, body: (500, {})
    assert start(url).variant == "off"


# The operator's own settings, and what is unsafe.


@pytest.mark.parametrize("variant", ["on", "off"])
def test_force_wins_over_the_pin_and_leaves_the_comparison(start, telling, collector, decided, variant) -> None:
    carried = start(telling(), KVFLAGS_FORCE=variant)
    assert summary(carried) == (variant, "local", "local:KVFLAGS_FORCE", True)
    assert collector.bodies()[0]["local"] == {"source": "KVFLAGS_FORCE", "variant": variant}
    assert carried.local == "KVFLAGS_FORCE"
    local = {"variant": variant, "arm": None, "comparison": "excluded", "reason": "local:KVFLAGS_FORCE"}
    assert carried.decision.to_json() == decided | local


def test_what_a_forced_engine_was_told_is_not_kept_for_its_peers(start, telling, collector) -> None:
    url = telling()
    start(url, KVFLAGS_FORCE="off")
    collector.answer = lambda path, body: (500, {})
    assert summary(start(url)) == ("off", "fallback", "unreachable", False)


def test_force_holds_without_a_collector(start) -> None:
    carried = start(NOWHERE, KVFLAGS_FORCE="on")
    assert summary(carried) == ("on", "local", "local:KVFLAGS_FORCE", False)
    assert (carried.decision.flag, carried.decision.epoch) == ("", 0)


@pytest.mark.parametrize(("layout", "variant"), [("BHLNC", "on"), ("LBHNC", "off"), ("HND", "off")])
def test_vllms_own_variable_is_local_too_and_wins_over_force(start, telling, layout, variant) -> None:
    carried = start(telling(), VLLM_KV_CACHE_LAYOUT=layout, KVFLAGS_FORCE="on")
    assert summary(carried) == (variant, "local", "local:VLLM_KV_CACHE_LAYOUT", True)
    assert carried.problems == ("KVFLAGS_FORCE",)


@pytest.fixture
def sparse(facts):
    return replace(facts, model_class="mla_sparse")


def test_an_unsafe_rule_turns_a_registered_on_off_and_is_told(start, telling, collector, sparse) -> None:
    carried = start(telling(), known=sparse)
    assert summary(carried) == ("off", "registered", "unsafe_under_pin", True)
    assert (collector.bodies()[0]["refused"], collector.bodies()[0]["refused_code"]) == (
        "unsafe_under_pin",
        "sparse_mla",
    )
    assert (carried.decision.epoch, carried.decision.arm, carried.decision.comparison) == (7, None, "excluded")


def test_an_unsafe_rule_turns_every_other_on_off(start, settings, decided, sparse) -> None:
    heard_before(settings, decided)
    handed = {"KVFLAGS_DECISION": token(), "KVFLAGS_DECISION_KEY": public_key(KEY)}
    for named in ({}, handed, {"KVFLAGS_FORCE": "on"}):
        carried = start(NOWHERE, known=sparse, **named)
        assert (carried.variant, carried.reason) == ("off", "unsafe_under_pin")


def test_rules_that_are_not_unsafe_keep_a_pinned_on(start, telling, facts) -> None:
    hopeless = replace(facts, kv_heads_per_rank=1, pp=2, isolation="unknown", backend="FLEX_ATTENTION")
    assert summary(start(telling(), known=hopeless)) == ("on", "registered", "assigned", True)


def test_without_nixls_telemetry_a_pin_is_still_carried_out(start, telling, collector) -> None:
    carried = start(telling(), NIXL_TELEMETRY_ENABLE="0")
    assert summary(carried) == ("on", "registered", "assigned", True)
    assert collector.bodies()[0]["problems"] == ["nixl_telemetry_disabled"]
    alone = start(NOWHERE, NIXL_TELEMETRY_ENABLE="0", KVFLAGS_GENERATION="r1")
    assert summary(alone) == ("off", "telemetry_disabled", "nixl_telemetry_disabled", False)


# Time.


def took(call) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_silence_costs_two_seconds_and_no_more(start, raw_server) -> None:
    server = raw_server(lambda connection, over: over.wait(10))
    seconds = took(lambda: start(server.url, KVFLAGS_ON_UNREACHABLE="off"))
    assert 1.9 < seconds < 2.5


def test_wait_is_as_long_as_was_said(start, collector) -> None:
    collector.answer = lambda path, body: (503, {})
    seconds = took(lambda: start(collector.url, KVFLAGS_ON_UNREACHABLE="wait:1"))
    assert 0.3 < seconds < 1.5
    assert len(collector.requests) >= 3


def test_a_collector_that_comes_back_within_the_bound_is_heard(start, collector, decided) -> None:
    answers = iter([(503, {}), (503, {}), (200, {"decisions": [decided]})])
    collector.answer = lambda path, body: next(answers)
    assert summary(start(collector.url, KVFLAGS_ON_UNREACHABLE="off")) == ("on", "registered", "assigned", True)
    assert len({body["registration_id"] for body in collector.bodies()}) == 1


def test_a_refusal_is_not_repeated(start, collector) -> None:
    collector.answer = lambda path, body: (401, {})
    carried = start(collector.url)
    assert summary(carried) == ("off", "fallback", "unreachable", False)
    assert (carried.problems, len(collector.requests)) == (("refused",), 1)


@pytest.mark.parametrize("answer", [{}, {"decisions": [{"feature": "cross_layer_blocks", "variant": "on"}]}])
def test_an_answer_of_another_shape_is_nobody(start, collector, answer) -> None:
    collector.answer = lambda path, body: (200, answer)
    assert summary(start(collector.url)) == ("off", "fallback", "unreachable", False)


# Process trees.


def test_api_servers_take_over_what_their_parent_was_told(start, telling, collector, fake_config, monkeypatch) -> None:
    environ: dict[str, str] = {}
    told = start(telling(), config=fake_config(count=2, rank=-1), environ=environ)
    monkeypatch.setattr(os, "getppid", os.getpid)
    for rank in (0, 1):
        assert start(collector.url, config=fake_config(count=2, rank=rank), environ=environ) == told
    assert len(collector.requests) == 1


def test_an_api_server_whose_parent_said_nothing_sends_nothing(start, telling, collector, fake_config) -> None:
    orphan = start(telling(), config=fake_config(count=2, rank=0))
    assert (summary(orphan), orphan.url) == (("off", "fallback", "not_inherited", False), None)
    assert collector.requests == []


def test_two_engines_of_one_process_do_not_inherit_from_each_other(start, telling, collector, fake_config) -> None:
    environ: dict[str, str] = {}
    first = start(telling(), environ=environ)
    second = start(collector.url, config=fake_config("kv_consumer"), environ=environ)
    assert (first.role, second.role, environ) == ("prefill", "decode", {})
    assert first.registration_id != second.registration_id


def test_a_follower_and_a_preload_daemon_do_not_register(start, telling, collector, fake_config) -> None:
    url = telling()
    assert summary(start(url, config=fake_config(node=1))) == ("off", "fallback", "not_a_front_end", False)
    assert summary(start(url, argv=("vllm", "preload"))) == ("off", "fallback", "not_a_front_end", False)
    assert collector.requests == []


def test_a_death_is_reported_by_the_next_start(start, telling, collector, settings) -> None:
    url = telling()
    state = State.of(settings(url))
    state.prepare()
    state.path("prefill.mark.0123456789abcdef.front").touch()
    start(url)
    assert collector.bodies()[0]["deaths"] == 1


def test_a_state_folder_that_cannot_be_used_changes_nothing_else(start, telling, collector, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    carried = start(telling(), KVFLAGS_STATE_DIR=str(tmp_path / "file"))
    assert summary(carried) == ("on", "registered", "assigned", True)
    assert carried.problems == ("state_dir",)


# The log.


def test_the_line_says_what_is_on_why_what_goes_where_and_how_to_stop_it(start, telling, collector, caplog) -> None:
    with caplog.at_level(logging.INFO, "vllm.kvflags"):
        start(telling())
    assert [record.message for record in caplog.records] == [
        "kvflags: cross_layer_blocks is on in eu/prod/chat, generation r41 (prefill): assigned, registered; "
        "flag cross-layer-blocks, epoch 7, arm treatment, pinned. "
        f"Layout and transfer figures, never prompts or tokens, go to {collector.url}. "
        "KVFLAGS_DISABLED=1 switches kvflags off"
    ]


def test_what_is_wrong_follows_as_a_warning_each(start, caplog) -> None:
    with caplog.at_level(logging.INFO, "vllm.kvflags"):
        start(NOWHERE, KVFLAGS_FORCE="maybe")
    line, setting, unreachable = caplog.records
    assert line.message.startswith(
        "kvflags: cross_layer_blocks is off in eu/prod/chat, generation r41 (prefill): unreachable, fallback. "
    )
    assert setting.message == "kvflags: KVFLAGS_FORCE: 'maybe' is ignored; hint: set it to on, off, or not at all"
    assert unreachable.message.startswith("kvflags: unreachable: The collector at 127.0.0.1:9 does not answer: ")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING"]


def test_the_line_of_an_engine_that_keeps_it_here(start, caplog, tmp_path) -> None:
    with caplog.at_level(logging.INFO, "vllm.kvflags"):
        start(KVFLAGS_TELEMETRY="local")
    here = (tmp_path / "state" / "local").as_uri()
    assert caplog.records[0].message.partition(". ")[2] == (
        f"Layout and transfer figures, never prompts or tokens, stay here in {here}; nothing is sent. "
        "KVFLAGS_DISABLED=1 switches kvflags off"
    )


def test_the_line_of_an_engine_that_sends_nothing(start, caplog) -> None:
    with caplog.at_level(logging.INFO, "vllm.kvflags"):
        start(KVFLAGS_DEPLOYMENT="")
    assert caplog.records[0].message == (
        "kvflags: cross_layer_blocks is off in an unidentified deployment, generation r41 (prefill): "
        "no_collector, fallback. Nothing is sent (KVFLAGS_COLLECTOR_URL is not set). "
        "KVFLAGS_DISABLED=1 switches kvflags off"
    )
