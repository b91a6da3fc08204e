# SPDX-License-Identifier: Apache-2.0
"""What `doctor` looks at on this machine, and what it reads from what engines told the collector."""

import json

import pytest

from kvflags_cli.checks import Check, fleet, host


def _host(environ=None, config=None):
    return {check.name: check for check in host.checks(environ or {}, config)}


def test_a_machine_where_all_is_well():
    assert _host() == {
        "vllm": Check("vllm", "ok", "0.32.0"),
        "plugin": Check("plugin", "ok", "vLLM will load it"),
        "settings": Check("settings", "ok", "every KVFLAGS_ variable can be read"),
        "nixl telemetry": Check("nixl telemetry", "ok", "not switched off"),
    }


def test_a_plugin_that_is_filtered_out():
    assert _host({"VLLM_PLUGINS": "lora"})["plugin"] == Check(
        "plugin", "finding", "VLLM_PLUGINS=lora leaves it out", "add kvflags to VLLM_PLUGINS, or unset it"
    )
    assert _host({"VLLM_PLUGINS": "lora,kvflags"})["plugin"].outcome == "ok"


def test_a_malformed_setting_is_told_with_its_hint():
    assert _host({"KVFLAGS_FORCE": "maybe"})["settings"] == Check(
        "settings", "finding", "KVFLAGS_FORCE: 'maybe' is ignored", "set it to on, off, or not at all"
    )


@pytest.mark.parametrize("value", ["0", "false", "off"])
def test_nixl_telemetry_switched_off(value):
    assert _host({"NIXL_TELEMETRY_ENABLE": value})["nixl telemetry"] == Check(
        "nixl telemetry",
        "finding",
        "NIXL_TELEMETRY_ENABLE switches it off, so transfers cannot be measured and nothing new is treated",
        "unset NIXL_TELEMETRY_ENABLE for engines",
    )


def test_the_switch_that_does_nothing_any_more():
    config = {"kv_connector": "NixlConnector", "kv_connector_extra_config": {"enable_cross_layers_blocks": True}}
    assert _host(config=json.dumps(config))["kv transfer config"] == Check(
        "kv transfer config",
        "finding",
        "enable_cross_layers_blocks does nothing since 0.29",
        "remove it; kvflags asks for the layout",
    )
    assert _host(config='{"kv_connector": "NixlConnector"}')["kv transfer config"].outcome == "ok"
    assert _host(config="[1]")["kv transfer config"].says == "it is not a JSON object"


def test_a_webhook_whose_receiver_is_away():
    assert fleet.webhook(None) == Check("webhook", "skipped", "no webhook was ever set")
    found = {"delivered": 7, "waiting": 2, "given_up": 1, "error": "it answered 503"}
    assert fleet.webhook(found | {"error": None}) == Check("webhook", "ok", "7 delivered, 2 waiting")
    away = fleet.webhook(found)
    assert (away.outcome, away.says) == ("finding", "the last was not taken: it answered 503 (2 waiting, 1 given up)")
    assert "--webhook" in away.hint


def _engine(generation, role, problems=()):
    return {"deployment": "d", "generation": generation, "role": role, "engine_id": f"{role}-1", "problems": problems}


def test_generations_with_one_role_each():
    assert list(fleet.roles([_engine("abc", "prefill"), _engine("def", "decode")])) == [
        Check(
            "roles",
            "finding",
            "d: abc has prefill only, def has decode only",
            "set KVFLAGS_GENERATION to the same release label on both, or wait if the other role is still starting",
        )
    ]


@pytest.mark.parametrize(
    "engines",
    [
        [_engine("r1", "prefill"), _engine("r1", "decode")],
        # A new generation of which only the first half is up, beside a whole one.
        [_engine("r1", "prefill"), _engine("r1", "decode"), _engine("r2", "prefill")],
        [_engine("r1", "both")],
    ],
)
def test_generations_that_are_whole(engines):
    assert [check.outcome for check in fleet.roles(engines)] == ["ok"]


def test_what_engines_say_of_themselves():
    engines = [
        _engine("r1", "prefill", ["nixl_telemetry_disabled"]),
        _engine("r1", "decode", ["nixl_telemetry_disabled"]),
    ]
    assert list(fleet.problems(engines)) == [
        Check(
            "engines",
            "finding",
            "nixl_telemetry_disabled on d decode-1; d prefill-1",
            "unset NIXL_TELEMETRY_ENABLE on these engines",
        )
    ]
    (setting,) = fleet.problems([_engine("r1", "prefill", ["KVFLAGS_FORCE"])])
    assert setting.hint == "put KVFLAGS_FORCE right on these engines; their logs and `kvflags help environment` say how"
    assert list(fleet.problems([])) == [Check("engines", "ok", "none reports a problem")]


@pytest.mark.parametrize(
    ("began", "outcome", "says"),
    [
        (1_000_000_000.0, "ok", "within 5 s of the collector's"),
        (1_000_000_005.9, "ok", "within 5 s of the collector's"),
        (1_000_000_061.0, "finding", "60 s away from the collector's"),
        (999_999_940.0, "finding", "60 s away from the collector's"),
    ],
)
def test_the_clock(began, outcome, says):
    check = fleet.clock("Sun, 09 Sep 2001 01:46:40 GMT", began, began)
    assert (check.outcome, check.says) == (outcome, says)


def test_a_collector_without_a_clock():
    assert fleet.clock(None, 0.0, 0.0) == Check("clock", "skipped", "the collector sends no time")
