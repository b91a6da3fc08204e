# SPDX-License-Identifier: Apache-2.0
"""What starts fast, and what is said where parts are not installed. Each in a process of its own."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_HEAVY = ("alembic", "fastapi", "kvflags_collector", "sqlalchemy", "torch", "uvicorn", "vllm")
_LOOK = f"""
import sys
import kvflags_cli
sys.argv[0] = "kvflags"
try:
    kvflags_cli.main()
finally:
    print([name for name in {_HEAVY!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture
def installed_without(tmp_path):
    """An environment like this one, without some packages: their folders are just not linked into it."""

    def link(*absent):
        packages = tmp_path / "packages"
        packages.mkdir()
        # Debian's Python names one that is not there.
        for folder in filter(Path.is_dir, map(Path, site.getsitepackages())):
            for entry in folder.iterdir():
                if entry.name.partition(".")[0] not in absent:
                    (packages / entry.name).symlink_to(entry)
        ours = [str(ROOT / folder) for folder in (".", "cli", "collector", "migrations")]
        return os.pathsep.join([*ours, str(packages)])

    return link


def _run(*arguments, path=""):
    """With a path: `-S` leaves out the real site-packages."""
    options = ["-W", "error", *(["-S"] if path else [])]
    return subprocess.run(
        [sys.executable, *options, "-c", _LOOK, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("report", "--help"), ("serve", "--help")])
def test_nothing_heavy_is_imported(arguments):
    result = _run(*arguments)
    assert (result.returncode, result.stderr) == (0, "[]\n")


@pytest.mark.parametrize("absent", [("typer",), ("rich",), ("httpx",), ("httpx", "rich", "typer")])
def test_without_the_cli_extra_it_says_what_to_install(installed_without, absent):
    result = _run("report", "k", path=installed_without(*absent))
    assert (result.returncode, result.stdout, result.stderr) == (
        2,
        "",
        f"error: the kvflags command is not installed here: {' and '.join(absent)} missing\n\n"
        "hint: pip install 'kvflags[cli]'\n[]\n",
    )


@pytest.mark.parametrize(
    ("arguments", "module"), [(("serve",), "uvicorn"), (("db", "upgrade"), "sqlalchemy"), (("db", "check"), "alembic")]
)
def test_without_the_collector_extra_it_says_what_to_install(installed_without, arguments, module):
    result = _run(*arguments, path=installed_without(module))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(
        f"error: the collector is not installed here: {module} is missing\n\nhint: pip install 'kvflags[collector]'\n"
    )
