# SPDX-License-Identifier: Apache-2.0
"""Data on stdout, talk on stderr; colours only in a terminal."""

import io
import json
import os
import pty
import subprocess
import sys

import pytest

from kvflags.errors import NotFound
from kvflags_cli.forms import Form
from kvflags_cli.output import fail, show
from kvflags_cli.render import numbers

FINDING = {"findings": 1, "checks": [{"name": "n", "outcome": "finding", "says": "[bold]s[/]", "hint": "h"}]}


def test_a_document(capsys):
    show("report", {"märz": 1}, as_json=True)
    assert capsys.readouterr() == (
        '{\n  "schema": "kvflags/1",\n  "kind": "report",\n  "data": {\n    "märz": 1\n  }\n}\n',
        "",
    )


def test_a_view_is_plain_when_piped_and_takes_brackets_as_they_are(capsys):
    show("doctor", FINDING, as_json=False)
    assert capsys.readouterr() == ("✗ finding  n: [bold]s[/]\n  hint: h\n\n1 finding.\n", "")


def test_an_error_in_words_and_as_a_document(capsys):
    error = NotFound("no flag 'x'", hint="kvflags flags list")
    fail(error, Form.TABLE)
    assert capsys.readouterr() == ("", "error: no flag 'x'\n\nhint: kvflags flags list\n")
    fail(error, Form.JSON)
    out, err = capsys.readouterr()
    assert err == "error: no flag 'x'\n\nhint: kvflags flags list\n"
    assert json.loads(out)["error"] == {"code": "unknown_flag", "message": "no flag 'x'", "hint": "kvflags flags list"}


def test_an_error_without_a_hint(capsys):
    fail(NotFound("no flag 'x'"), Form.TABLE)
    assert capsys.readouterr().err == "error: no flag 'x'\n"


def _in_a_terminal(*arguments, **environ):
    """What a person's terminal gets: stdout and stderr on a pseudo-terminal of 80 columns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kvflags_cli", *arguments]
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **environ}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        text = io.BytesIO()
        while chunk := _read(ours):
            text.write(chunk)
        process.wait(20)
    os.close(ours)
    return text.getvalue().decode()


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_terminal_has_colours():
    assert "\x1b[32m" in _in_a_terminal("doctor")


def test_no_color_is_honoured():
    text = _in_a_terminal("doctor", NO_COLOR="1")
    assert not any(f"\x1b[{colour}m" in text for colour in range(30, 38))


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -W error -m kvflags_cli help environment | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True)
    assert (result.stdout.splitlines()[-1], result.stderr) == ("0", "")


def test_a_terminal_without_utf8_gets_escapes_in_place_of_a_traceback():
    result = subprocess.run(
        [sys.executable, "-m", "kvflags_cli", "help", "exit-codes"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (numbers.count, 1234567, "1,234,567"),
        (numbers.amount, 0.0, "0"),
        (numbers.amount, 0.041834, "0.0418"),
        (numbers.amount, 1840.4, "1,840"),
        (numbers.size, 512, "512 B"),
        (numbers.size, 1 << 40, "1 TiB"),
        (numbers.percent, 0.0625, "6.25 %"),
        (numbers.span, 5400, "90m"),
        (numbers.span, 0, "0s"),
        (numbers.moment, "2026-11-30T23:10:03+01:00", "2026-11-30 22:10:03 UTC"),
        (numbers.moment, 1_000_000, "1970-01-01 00:00:01 UTC"),
        (numbers.yes_no, False, "no"),
    ],
)
def test_numbers(function, value, text):
    assert function(value) == text
    assert function(None) == "-"


def test_times():
    assert numbers.milliseconds({"p50": 999.7}, "p50") == "1,000 ms"
    assert numbers.milliseconds({"p50": None}, "p50") == numbers.milliseconds(None, "p50") == "-"
