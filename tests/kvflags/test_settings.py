# SPDX-License-Identifier: Apache-2.0
"""Settings: whatever stands in the environment, an engine starts, and is told what is wrong with it."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvflags.settings import SETTINGS, Settings, id_problem, problem_code

# A machine that is busy with engines takes its time.
unhurried = hypothesis_settings(deadline=None)

NAMES = tuple(setting.name for setting in SETTINGS)
READ_BESIDES = ("HOME", "XDG_STATE_HOME", "POD_NAMESPACE", "APP_LABEL", "CLUSTER_NAME", "VLLM_KV_CACHE_LAYOUT")


def test_an_empty_environment_is_observed_by_nobody_and_wrong_in_nothing() -> None:
    assert Settings.from_environ({}) == Settings(
        collector_url=None,
        token=None,
        ca_file=None,
        deployment=None,
        generation="default",
        role=None,
        isolation="unknown",
        disabled=False,
        telemetry="on",
        force=None,
        wait_s=2.0,
        decision=None,
        decision_key=None,
        state_dir=None,
        kv_cache_layout=None,
        nixl_telemetry=True,
        lab=False,
        problems=(),
    )


def test_everything_set() -> None:
    environ = {
        "KVFLAGS_COLLECTOR_URL": "https://kvflags.example:4318/here/",
        "KVFLAGS_TOKEN": "secret\n",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/etc/ca.pem",
        "KVFLAGS_DEPLOYMENT": "eu/prod/chat",
        "KVFLAGS_GENERATION": "r41",
        "KVFLAGS_ROLE": "Prefill",
        "KVFLAGS_ISOLATION": "router",
        "KVFLAGS_DISABLED": "yes",
        "KVFLAGS_TELEMETRY": "Local",
        "KVFLAGS_FORCE": "on",
        "KVFLAGS_ON_UNREACHABLE": "wait:90",
        "KVFLAGS_DECISION": "a.b",
        "KVFLAGS_DECISION_KEY": "k",
        "KVFLAGS_STATE_DIR": "~/kv",
        "HOME": "/home/vllm",
        "VLLM_KV_CACHE_LAYOUT": "BHLNC",
        "NIXL_TELEMETRY_ENABLE": "No",
        "KVFLAGS_LAB_CPU_LAYOUTS": "1",
    }
    assert Settings.from_environ(environ) == Settings(
        collector_url="https://kvflags.example:4318/here",
        token="secret",
        ca_file="/etc/ca.pem",
        deployment="eu/prod/chat",
        generation="r41",
        role="prefill",
        isolation="router",
        disabled=True,
        telemetry="local",
        force="on",
        wait_s=90.0,
        decision="a.b",
        decision_key="k",
        state_dir="/home/vllm/kv",
        kv_cache_layout="BHLNC",
        nixl_telemetry=False,
        lab=True,
        problems=(),
    )


@pytest.mark.parametrize(
    ("name", "value", "field", "default"),
    [
        ("KVFLAGS_COLLECTOR_URL", "collector:4318", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "ftp://collector", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://host:99999", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://host:x", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://[::1", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://host/\r\nX: y", "collector_url", None),
        ("KVFLAGS_COLLECTOR_URL", "http://host/?a=b", "collector_url", None),
        ("KVFLAGS_TOKEN", "two words", "token", None),
        ("KVFLAGS_TOKEN", "a\r\nX-Other: b", "token", None),
        ("KVFLAGS_TOKEN", "schlüssel", "token", None),
        ("KVFLAGS_DEPLOYMENT", "", "deployment", None),
        ("KVFLAGS_DEPLOYMENT", "  ", "deployment", None),
        ("KVFLAGS_DEPLOYMENT", "a\x07b", "deployment", None),
        ("KVFLAGS_DEPLOYMENT", "a\n", "deployment", None),
        ("KVFLAGS_DEPLOYMENT", "ü" * 127, "deployment", None),
        ("KVFLAGS_DEPLOYMENT", "a\udc80", "deployment", None),
        ("KVFLAGS_GENERATION", "", "generation", "default"),
        ("KVFLAGS_GENERATION", "g" * 254, "generation", "default"),
        ("KVFLAGS_ROLE", "router", "role", None),
        ("KVFLAGS_ISOLATION", "yes", "isolation", "unknown"),
        ("KVFLAGS_FORCE", "1", "force", None),
        ("KVFLAGS_TELEMETRY", "none", "telemetry", "local"),
        ("KVFLAGS_ON_UNREACHABLE", "wait", "wait_s", 2.0),
        ("KVFLAGS_ON_UNREACHABLE", "wait:-1", "wait_s", 2.0),
        ("KVFLAGS_ON_UNREACHABLE", "wait:nan", "wait_s", 2.0),
        ("KVFLAGS_ON_UNREACHABLE", "wait:1e9", "wait_s", 2.0),
        ("KVFLAGS_ON_UNREACHABLE", "fail", "wait_s", 2.0),
        ("KVFLAGS_STATE_DIR", "state", "state_dir", None),
        ("KVFLAGS_STATE_DIR", "/a\0b", "state_dir", None),
    ],
)
def test_a_malformed_value_becomes_one_problem_and_the_safe_default(
    name: str, value: str, field: str, default: object
) -> None:
    settings = Settings.from_environ({name: value})
    assert getattr(settings, field) == default
    (problem,) = settings.problems
    assert problem_code(problem) == name
    assert "; hint: " in problem


def test_what_is_wrong_is_said_in_words_with_what_to_do() -> None:
    environ = {"KVFLAGS_FORCE": "maybe", "KVFLAGS_DEPLOYMENT": "d" * 254}
    assert Settings.from_environ(environ).problems == (
        "KVFLAGS_DEPLOYMENT: it is longer than 253 bytes; hint: give 1 to 253 printable bytes; "
        "until then this engine is observed as unidentified",
        "KVFLAGS_FORCE: 'maybe' is ignored; hint: set it to on, off, or not at all",
    )


def test_an_id_of_exactly_253_bytes_is_fine() -> None:
    assert Settings.from_environ({"KVFLAGS_DEPLOYMENT": "d" * 253}).deployment == "d" * 253


@pytest.mark.parametrize(
    ("environ", "deployment"),
    [
        ({"POD_NAMESPACE": "prod", "APP_LABEL": "chat"}, "prod/chat"),
        ({"CLUSTER_NAME": "eu", "POD_NAMESPACE": "prod", "APP_LABEL": "chat"}, "eu/prod/chat"),
        ({"POD_NAMESPACE": "prod"}, None),
        ({"POD_NAMESPACE": "prod", "APP_LABEL": "c\n"}, None),
        # Set but wrong: guessing another name would put the engine into somebody else's deployment.
        ({"KVFLAGS_DEPLOYMENT": "", "POD_NAMESPACE": "prod", "APP_LABEL": "chat"}, None),
    ],
)
def test_namespace_and_app_label_name_a_deployment_that_nobody_named(
    environ: dict[str, str], deployment: str | None
) -> None:
    assert Settings.from_environ(environ).deployment == deployment


C = "http://c:4318"


@pytest.mark.parametrize(
    ("environ", "asks", "destination"),
    [
        ({}, None, None),
        ({"KVFLAGS_STATE_DIR": "/s"}, None, None),
        ({"KVFLAGS_COLLECTOR_URL": C}, C, C),
        ({"KVFLAGS_COLLECTOR_URL": C, "KVFLAGS_TELEMETRY": "on"}, C, C),
        ({"KVFLAGS_COLLECTOR_URL": C, "KVFLAGS_TELEMETRY": "off"}, None, None),
        ({"KVFLAGS_COLLECTOR_URL": C, "KVFLAGS_TELEMETRY": "0"}, None, None),
        (
            {"KVFLAGS_COLLECTOR_URL": C, "KVFLAGS_TELEMETRY": "local", "KVFLAGS_STATE_DIR": "/s"},
            None,
            "file:///s/local",
        ),
        ({"KVFLAGS_TELEMETRY": "local", "KVFLAGS_STATE_DIR": "/a b"}, None, "file:///a%20b/local"),
        ({"KVFLAGS_TELEMETRY": "none", "KVFLAGS_STATE_DIR": "/s"}, None, "file:///s/local"),
        ({"KVFLAGS_COLLECTOR_URL": C, "KVFLAGS_TELEMETRY": "local"}, None, None),
        ({"KVFLAGS_TELEMETRY": "local", "KVFLAGS_STATE_DIR": "/s", "KVFLAGS_DISABLED": "1"}, None, None),
    ],
)
def test_the_ladder(environ: dict[str, str], asks: str | None, destination: str | None) -> None:
    settings = Settings.from_environ(environ)
    assert (settings.asks, settings.destination) == (asks, destination)


def test_off_is_disabled() -> None:
    assert Settings.from_environ({"KVFLAGS_TELEMETRY": "off"}).disabled
    assert not Settings.from_environ({"KVFLAGS_TELEMETRY": "local"}).disabled


@pytest.mark.parametrize("value", ["", "0", "false", "No", " off "])
def test_words_for_no_leave_kvflags_enabled(value: str) -> None:
    assert not Settings.from_environ({"KVFLAGS_DISABLED": value}).disabled


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h", "XDG_STATE_HOME": "/x", "KVFLAGS_STATE_DIR": "/s"}, "/s"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/kvflags"),
        ({"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/kvflags"),
        ({"HOME": "/h"}, "/h/.local/state/kvflags"),
    ],
)
def test_where_state_is_kept(environ: dict[str, str], folder: str) -> None:
    assert Settings.from_environ(environ).state_dir == folder


def test_neither_the_token_nor_a_password_in_an_address_is_ever_printed() -> None:
    environ = {"KVFLAGS_TOKEN": "tok-7f", "KVFLAGS_COLLECTOR_URL": "http://me:pass-7f@host"}
    settings = Settings.from_environ(environ)
    assert settings.token == "tok-7f"
    assert settings.collector_url is None
    assert "7f" not in repr(settings)


class Recording(Mapping[str, str]):
    """An environment that notes which names it is asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_table_lists_exactly_the_settings_that_are_read() -> None:
    environ = Recording()
    Settings.from_environ(environ)
    # KVFLAGS_STRICT is read by the guard, long before there are settings.
    assert {name for name in environ.asked if name.startswith("KVFLAGS_")} == set(NAMES) - {"KVFLAGS_STRICT"}
    assert all(setting.meaning for setting in SETTINGS)


@unhurried
@given(st.dictionaries(st.sampled_from(NAMES + READ_BESIDES), st.text(st.characters(codec=None), max_size=300)))
def test_no_environment_raises_or_yields_an_id_that_the_collector_would_refuse(environ: dict[str, str]) -> None:
    settings = Settings.from_environ(environ)
    assert settings.deployment is None or not id_problem(settings.deployment)
    assert not id_problem(settings.generation)
    assert all(problem_code(problem) in NAMES for problem in settings.problems)
    assert 0 <= settings.wait_s <= 86_400
