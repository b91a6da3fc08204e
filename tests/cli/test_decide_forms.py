# SPDX-License-Identifier: Apache-2.0
"""A signed decision as the files that deliver it: valid YAML with the same two variables, the same text each time."""

import pytest
import yaml

KEY = "cross-layer-blocks"
WHERE = ("--deployment", "prod/chat/a", "--generation", "r2")


@pytest.fixture
def decide(kvflags, fleet):
    kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0")
    fleet.pair("prod/chat/a", "r1")
    return lambda form: kvflags("decide", KEY, *WHERE, "-o", form).out


def test_every_form_says_the_same(decide):
    variables = dict(line.split("=", 1) for line in decide("env").splitlines())
    assert yaml.safe_load(decide("configmap"))["data"] == variables
    assert {one["name"]: one["value"] for one in yaml.safe_load(decide("helm-values"))["env"]} == variables


@pytest.mark.parametrize("form", ["env", "helm-values", "configmap"])
def test_asking_twice_gives_the_same_text(decide, form):
    assert decide(form) == decide(form)
