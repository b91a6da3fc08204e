# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the command line itself: one error, a hint, exit code 2, in words and as JSON."""

import pytest

SET = ("rollout", "set", "cross-layer-blocks")

_WRONG = {
    "no reason": ((*SET, "25%"), "Missing option '--reason'.", "see `kvflags rollout set --help`"),
    "nothing to set": (
        (*SET, "--reason", "r"),
        "give exactly one of PERCENT, --count N and --inherit, not nothing",
        "such as `kvflags rollout set KEY 25% --reason TEXT`",
    ),
    "percentage and count": (
        (*SET, "25%", "--count", "1", "--reason", "r"),
        "give exactly one of PERCENT, --count N and --inherit, not percent and count",
        "such as `kvflags rollout set KEY 25% --reason TEXT`",
    ),
    "percentage out of range": (
        (*SET, "150%", "--reason", "r"),
        "a percentage lies between 0 and 100, not 150%",
        "such as 25%",
    ),
    "count that is no number": (
        (*SET, "--count", "two", "--reason", "r"),
        "Invalid value for '--count': Input should be a valid integer, unable to parse string as an integer",
        "see `kvflags rollout set --help`",
    ),
    "malformed duration": (
        ("flags", "create", "k", "--feature", "cross_layer_blocks", "--baseline", "1w"),
        "--baseline: not a duration: '1w'",
        "such as 7d, 10m, 1h30m, or a number of seconds",
    ),
    "malformed address": (
        ("report", "k", "--collector", "nowhere"),
        "--collector: it is not a collector's address",
        "give an address such as http://127.0.0.1:4318",
    ),
    "unknown command": (("rolout",), "No such command 'rolout'. Did you mean 'rollout'?", "see `kvflags --help`"),
    "unknown option": (
        ("report", "k", "--jason"),
        "No such option: --jason (Possible options: --as-of, --json)",
        "see `kvflags report --help`",
    ),
    "port that is none": (
        ("serve", "--port", "70000"),
        "Invalid value for '--port': Input should be less than or equal to 65535",
        "see `kvflags serve --help`",
    ),
    "unknown topic": (
        ("help", "colours"),
        "Invalid value for 'TOPIC': 'colours' is not one of 'exit-codes', 'environment', 'output'.",
        "see `kvflags help --help`",
    ),
}


@pytest.mark.parametrize("case", _WRONG)
def test_in_words(kvflags, case):
    arguments, message, hint = _WRONG[case]
    result = kvflags(*arguments)
    assert (result.code, result.out, result.err) == (2, "", f"error: {message}\n\nhint: {hint}\n")


@pytest.mark.parametrize("case", _WRONG)
def test_as_json(kvflags, case):
    arguments, message, hint = _WRONG[case]
    result = kvflags(*arguments, "--json")
    assert result.code == 2
    assert result.document == {
        "schema": "kvflags/1",
        "kind": "error",
        "data": None,
        "error": {"code": "invalid", "message": message, "hint": hint},
    }


def test_decide_speaks_json_with_its_own_option_too(kvflags):
    assert kvflags("decide", "k", "-o", "json").document["error"]["message"] == "Missing option '--deployment'."
