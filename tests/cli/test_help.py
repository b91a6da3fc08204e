# SPDX-License-Identifier: Apache-2.0
"""Help: every command shows how it is used, and the topics are the tables that the code uses."""

import pytest
import typer

from kvflags import __version__
from kvflags.settings import SETTINGS
from kvflags_cli.app import app
from kvflags_cli.exit_codes import MEANINGS
from kvflags_cli.settings import VARIABLES


def _paths(command, *path):
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _paths(below, *path, name)


PATHS = list(_paths(typer.main.get_command(app)))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_ends_with_an_example(kvflags, path):
    result = kvflags(*path, "--help")
    assert (result.code, result.err) == (0, "")
    _, example = result.out.split("\n  Example:\n")
    assert all(line.startswith(f"    kvflags {' '.join(path)}".rstrip()) for line in example.splitlines())


@pytest.mark.parametrize("path", [path for path in PATHS if path], ids=" ".join)
def test_every_command_has_json(kvflags, path):
    text = kvflags(*path, "--help").out
    assert "--json" in text or "Commands:" in text


def test_without_a_command_the_help_is_shown(kvflags):
    assert kvflags() == kvflags("--help")


def test_version(kvflags):
    result = kvflags("--version")
    assert (result.code, result.out, result.err) == (0, f"kvflags {__version__}\n", "")


def test_exit_codes(kvflags):
    rows = kvflags("help", "exit-codes", "--json").document["data"]
    assert [(row["code"], row["meaning"]) for row in rows] == [(int(code), says) for code, says in MEANINGS.items()]
    assert rows[5] == {
        "code": 5,
        "meaning": "The collector cannot be reached, or cannot answer now. Trying again later may help.",
        "errors": ["unreachable", "overloaded", "database_busy"],
    }
    assert "   5  The collector cannot be reached" in kvflags("help", "exit-codes").out


def test_environment(kvflags):
    text = kvflags("help", "environment").out
    assert all(f"{setting.name} (default: " in text for setting in (*VARIABLES, *SETTINGS))


def test_output(kvflags):
    assert '{"schema": "kvflags/1", "kind": "report", "data": ...}' in kvflags("help", "output").out
