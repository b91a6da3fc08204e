# SPDX-License-Identifier: Apache-2.0
"""The wheel works outside the checkout: version, a new database, a collector that serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvflags import __version__
from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.service import Service

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel unpacked by pip into a folder of its own, which goes before the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("kvflags-*.whl")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder / "site"),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


@pytest.fixture
def run(installed, tmp_path):
    def run(*arguments):
        environ = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    return run


def test_it_is_the_wheel_that_runs(run, installed):
    assert run("kvflags_cli", "--version") == f"kvflags {__version__}\n"
    for package in ("kvflags", "kvflags_cli", "kvflags_collector", "kvflags_migrations"):
        assert (installed / package / "__init__.py").exists()
    names = {path.name for path in installed.iterdir()}
    assert not names & {"collector", "cli", "migrations", "tests"}


def test_it_makes_a_database_and_serves_it(run, installed, tmp_path, monkeypatch):
    run("kvflags_cli", "db", "upgrade", "--db", "sqlite:///made.db")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.chdir(tmp_path)
    service = Service(tmp_path / "made.db", tmp_path / "collector.log", port=free_port()).start()
    try:
        with service.client() as client:
            assert client.get("flags")["items"] == []
    finally:
        service.stop()


def test_the_engine_side_finds_its_entry_points(run):
    script = "import importlib.metadata as m; print({p.name for p in m.entry_points(group='vllm.general_plugins')})"
    told = run("timeit", "-n1", "-r1", script)
    assert "'kvflags'" in told
    assert "'kvflags_lab'" in told
