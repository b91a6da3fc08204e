# SPDX-License-Identifier: Apache-2.0
"""Logging: one JSON document a line whatever was sent, lines for people, and no secret in either."""

import io
import json
import logging

import pytest

from kvflags.errors import UsageError
from kvflags_collector import logs
from kvflags_collector.settings import Settings


@pytest.fixture
def log():
    """log(form): a stream that everything logged goes to."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def configure(form: str, level: str = "info") -> io.StringIO:
        stream = io.StringIO()
        logs.configure(form, level, stream)
        return stream

    yield configure
    root.handlers, root.level = before, level


def test_one_document_a_line(log):
    stream = log("json")
    logging.getLogger("a").info("two\nlines %s", 1, extra={"request_id": "x"})
    try:
        raise ValueError("wrong\nhere")
    except ValueError:
        logging.getLogger("b").exception("failed")
    one, other = map(json.loads, stream.getvalue().splitlines())
    assert one.pop("at").endswith("Z")
    assert one == {"level": "info", "logger": "a", "message": "two\nlines 1", "request_id": "x"}
    assert (other["level"], "wrong\nhere" in other["exception"]) == ("error", True)


def test_for_people(log):
    stream = log("text", "warning")
    logging.getLogger("a").info("not shown")
    logging.getLogger("a").warning("shown", extra={"request_id": "x"})
    assert stream.getvalue().endswith("WARNING a: shown request_id=x\n")
    assert "not shown" not in stream.getvalue()


@pytest.mark.parametrize("wrong", [{"log_format": "xml"}, {"log_level": "loud"}, {"drain_s": -1}])
def test_settings_out_of_range(wrong):
    with pytest.raises(UsageError) as refused:
        Settings(**wrong)
    assert refused.value.hint


def test_what_fails_again_and_again_is_said_once_a_minute(caplog):
    now = [0.0]
    seldom = logs.Seldom(logging.getLogger("a"), clock=lambda: now[0])
    for now[0] in range(121):
        seldom.say(logging.ERROR, "could not store %s", now[0])
        seldom.say(logging.WARNING, "put off")
    said = [(record.getMessage(), getattr(record, "unsaid", 0)) for record in caplog.records]
    assert said == [
        ("could not store 0", 0),
        ("put off", 0),
        ("could not store 60", 59),
        ("put off", 59),
        ("could not store 120", 59),
        ("put off", 59),
    ]
