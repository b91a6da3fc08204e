# SPDX-License-Identifier: Apache-2.0
"""Our OpenFeature provider against a real collector on a socket: one request for many evaluations, what is stale."""

import pytest
import requests
from listening import listening
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import (
    FlagNotFoundError,
    GeneralError,
    InvalidContextError,
    TargetingKeyMissingError,
    TypeMismatchError,
)
from openfeature.flag_evaluation import Reason

from kvflags.openfeature import KvflagsProvider

A = EvaluationContext("c/ns/a")


class Program:
    """One that asks, with a clock that the test moves."""

    def __init__(self, api, url):
        self.api, self.url, self.now = api, url, 0.0
        self.provider = KvflagsProvider(url, timeout_s=60, clock=lambda: self.now)

    def ask(self, key="clb", context=A, default=True):
        return self.provider.resolve_boolean_details(key, default, context)


@pytest.fixture
def program(api):
    api.create()
    with listening(api.another()) as url:
        yield Program(api, url)


def test_it_reads_what_the_collector_decides_once_the_last_answer_is_old(program):
    found = program.ask()
    assert (found.value, found.variant, found.reason) == (False, "off", Reason.DISABLED)
    program.api.pair()
    program.api.aim(percent=100)
    program.api.pair("g2")
    assert program.ask().value is False
    program.now = 31
    found = program.ask()
    assert (found.value, found.variant, found.flag_metadata["arm"]) == (True, "on", "treatment")


def test_nothing_changed_is_asked_by_tag_and_kept(program):
    for program.now in (0, 10, 31, 40):
        assert program.ask().reason == Reason.DISABLED
    counted = requests.get(f"{program.url}/metrics", timeout=60).text.splitlines()
    answers = [line for line in counted if "/ofrep/" in line and "requests_total" in line]
    assert sorted((line.rpartition(" ")[2], '"304"' in line) for line in answers) == [("1.0", False), ("1.0", True)]


def test_what_is_wrong_is_told(program):
    with pytest.raises(FlagNotFoundError):
        program.ask("none")
    with pytest.raises(TargetingKeyMissingError):
        program.ask(context=EvaluationContext())
    with pytest.raises(InvalidContextError):
        program.ask(context=EvaluationContext("a\nb"))
    for ask in (
        program.provider.resolve_string_details,
        program.provider.resolve_integer_details,
        program.provider.resolve_float_details,
        program.provider.resolve_object_details,
    ):
        with pytest.raises(TypeMismatchError):
            ask("clb", "x", A)


def test_while_the_collector_is_silent_it_goes_on_with_what_it_knows(api):
    api.create()
    with listening(api.another()) as url:
        program = Program(api, url)
        program.ask()
    program.now = 31
    assert (program.ask().value, program.ask().reason) == (False, Reason.STALE)
    with pytest.raises(GeneralError, match="does not answer"):
        program.ask(context=EvaluationContext("c/ns/new"))
