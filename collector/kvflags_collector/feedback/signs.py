# SPDX-License-Identifier: Apache-2.0
"""Positive and negative, side by side: what was measured of single deployments, and what people said of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from kvflags_collector.feedback.document import Item, Signs
from kvflags_collector.judge.strata import UNKNOWN
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.placebo import DeploymentVerdict

__all__ = ["NO_SIGNS", "by_stratum", "total"]

_SIGNS = ("positive", "negative")
_VERDICTS = tuple(one.value for one in DeploymentVerdict)
NO_SIGNS: Signs = {"measured": dict.fromkeys(_VERDICTS, 0), "given": dict.fromkeys(_SIGNS, 0)}


def by_stratum(judged: Inputs, items: Iterable[Item]) -> dict[str, Signs]:
    """Of every stratum in which a deployment is treated or somebody said something.

    A treated deployment of which nothing is known yet counts as `insufficient`.
    """
    alone = {one.deployment: one.verdict.value for one in judged.alone}
    home = {one.deployment: one.stratum for one in judged.deployments}
    measured: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged.deployments:
        if one.treated:
            measured[one.stratum][alone.get(one.deployment, DeploymentVerdict.INSUFFICIENT.value)] += 1
    given: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        if item["source"] == "given":
            given[item.get("stratum") or home.get(item["deployment"], UNKNOWN)][item["sign"]] += 1
    return {name: _signs(measured[name], given[name]) for name in sorted(measured.keys() | given.keys())}


def total(each: Iterable[Signs]) -> Signs:
    """Of all strata together."""
    measured, given = Counter[str](), Counter[str]()
    for one in each:
        measured.update(one["measured"])
        given.update(one["given"])
    return _signs(measured, given)


def _signs(measured: Mapping[str, int], given: Mapping[str, int]) -> Signs:
    return {
        "measured": {name: measured.get(name, 0) for name in _VERDICTS},
        "given": {name: given.get(name, 0) for name in _SIGNS},
    }
