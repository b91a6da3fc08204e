# SPDX-License-Identifier: Apache-2.0
"""deploy/: what can be checked of it without the system it is for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from kvflags_cli.app import app

UNIT = Path(__file__).parents[2] / "deploy" / "kvflags.service"


def _command() -> list[str]:
    return shlex.split(re.search(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)[1])


def test_every_option_of_the_unit_exists():
    binary, command, *rest = _command()
    assert (Path(binary).name, command) == ("kvflags", "serve")
    known = {name for option in typer.main.get_command(app).commands["serve"].params for name in option.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_its_database_lies_in_the_directory_that_it_may_write_to():
    text = UNIT.read_text()
    assert "sqlite:////var/lib/kvflags/" in text
    assert "\nStateDirectory=kvflags\n" in text
    assert "\nProtectSystem=strict\n" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_it(tmp_path):
    # With a binary that exists here: systemd looks for it.
    unit = tmp_path / "kvflags.service"
    unit.write_text(UNIT.read_text().replace("/opt/kvflags/bin/kvflags", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
