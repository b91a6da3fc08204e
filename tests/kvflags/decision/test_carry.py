# SPDX-License-Identifier: Apache-2.0
"""How a decision travels: whole, as plain JSON, without the token, and never into somebody else's engine."""

import json
import pickle
from dataclasses import replace

import pytest

from kvflags.decision import carry
from kvflags.decision.carry import Carried, Source
from kvflags.flags import Arm, Decision, PinState, Variant


@pytest.fixture
def carried(decided) -> Carried:
    return Carried(
        source="registered",
        reason="assigned",
        registration_id="8d0f",
        decision=Decision.from_json(decided),
        registered=True,
        registration={"deployment": "eu/prod/chat", "generation": "r41", "role": "prefill", "local": None},
        url="http://collector:4318",
        heartbeat_s=30.0,
        problems=("state_dir",),
    )


def test_in_the_configuration_it_is_plain_json_with_the_decision_in_sight(carried, decided, fake_config) -> None:
    config = fake_config(extra={"backends": ["UCX"]})
    carry.put(config, carried)
    extra = config.kv_transfer_config.kv_connector_extra_config
    assert json.loads(json.dumps(extra)) == extra
    assert extra == {
        "backends": ["UCX"],
        "kvflags": {
            "decision": decided,
            "carried": {
                "source": "registered",
                "reason": "assigned",
                "registration_id": "8d0f",
                "registered": True,
                "registration": {"deployment": "eu/prod/chat", "generation": "r41", "role": "prefill", "local": None},
                "url": "http://collector:4318",
                "heartbeat_s": 30.0,
                "problems": ["state_dir"],
            },
        },
    }


def test_what_is_pickled_names_no_class_of_ours(carried, fake_config) -> None:
    config = fake_config()
    told = replace(carried.decision, variant=Variant.ON, arm=Arm.TREATMENT, state=PinState.PINNED)
    carry.put(config, replace(carried, decision=told, source=Source.REGISTERED))
    assert b"kvflags.flags" not in pickle.dumps(config)
    assert b"kvflags.decision" not in pickle.dumps(config)


def test_it_comes_out_in_another_process_as_it_went_in(carried, fake_config) -> None:
    config = fake_config()
    carry.put(config, carried)
    assert carry.get(pickle.loads(pickle.dumps(config))) == carried


def test_two_engines_built_from_one_dict_do_not_share_a_decision(carried, fake_config) -> None:
    shared: dict = {"backends": ["UCX"]}
    one, other = fake_config(extra=shared), fake_config(extra=shared)
    carry.put(one, carried)
    assert carry.get(other) is None
    assert shared == {"backends": ["UCX"]}


def test_what_else_stands_under_our_key_stays(carried, fake_config) -> None:
    config = fake_config(extra={"kvflags": {"mine": 1, "decision": "old"}})
    carry.put(config, carried)
    assert config.kv_transfer_config.kv_connector_extra_config["kvflags"]["mine"] == 1
    assert carry.get(config) == carried


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"kvflags": None},
        {"kvflags": "on"},
        {"kvflags": {}},
        {"kvflags": {"decision": {"variant": "on"}}},
        {"kvflags": {"decision": None, "carried": {"of": "a later release"}}},
        {"kvflags": {"decision": 5, "carried": {"problems": []}}},
    ],
)
def test_what_nobody_put_there_is_no_decision(extra, fake_config) -> None:
    assert carry.get(fake_config(extra=extra)) is None


def test_without_a_connector_there_is_none(fake_config) -> None:
    config = fake_config()
    config.kv_transfer_config = None
    assert carry.get(config) is None


def test_what_follows_from_it(carried) -> None:
    assert (carried.variant, carried.deployment, carried.generation, carried.role, carried.local) == (
        "on",
        "eu/prod/chat",
        "r41",
        "prefill",
        None,
    )
    bare = Carried(source="fallback", reason="unreachable", registration_id="1")
    assert (bare.variant, bare.deployment, bare.generation, bare.role) == ("off", None, "default", "both")


def test_api_servers_inherit_from_their_parent(carried) -> None:
    environ: dict[str, str] = {}
    carry.export(environ, carried, 4711)
    assert carry.inherit(environ, 4711, "eu/prod/chat", "r41", "prefill") == carried


@pytest.mark.parametrize(
    "other",
    [
        (4712, "eu/prod/chat", "r41", "prefill"),
        (4711, "eu/prod/search", "r41", "prefill"),
        (4711, None, "r41", "prefill"),
        (4711, "eu/prod/chat", "r42", "prefill"),
        (4711, "eu/prod/chat", "r41", "decode"),
    ],
)
def test_nobody_else_inherits(carried, other) -> None:
    environ: dict[str, str] = {}
    carry.export(environ, carried, 4711)
    assert carry.inherit(environ, *other) is None


@pytest.mark.parametrize("value", ["", "{", "[]", "null", '{"decision": null, "carried": {}}'])
def test_an_environment_that_cannot_be_read_is_no_inheritance(value) -> None:
    assert carry.inherit({carry.ENVIRONMENT: value}, 1, None, "default", "both") is None


def test_a_nested_nixl_connector_finds_it_in_its_own_configuration(carried, fake_config) -> None:
    nixl, other = {"kv_connector": "NixlPushConnector", "kv_role": "kv_both"}, {"kv_connector": "ExampleConnector"}
    given = {"connectors": [nixl, other]}
    config = fake_config(extra=given)
    carry.put(config, carried)
    inner, sibling = config.kv_transfer_config.kv_connector_extra_config["connectors"]
    # As a MultiConnector makes it: out of the child's entry alone.
    assert carry.get(fake_config(extra=inner["kv_connector_extra_config"])) == carried
    assert sibling == other
    assert given == {"connectors": [{"kv_connector": "NixlPushConnector", "kv_role": "kv_both"}, other]}
