# SPDX-License-Identifier: Apache-2.0
"""The wheel works outside the checkout: version, a new database, a collector that serves, an overlay for engines."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


# As vLLM loads its plugins, and then a start; what it found is printed as the last line, in JSON.
ENGINE = """
import json, os, sys
from importlib.metadata import entry_points
from types import SimpleNamespace
from vllm.plugins import load_general_plugins
load_general_plugins()
import kvflags
from kvflags.decision.resolve import resolve
from kvflags.flags import Facts
from kvflags.imports import _FINDER
from kvflags.settings import Settings

config = SimpleNamespace(parallel_config=SimpleNamespace(), kv_transfer_config=SimpleNamespace(kv_role="kv_both"))
carried = resolve(Settings.from_environ(os.environ), config, static_facts=lambda *_: Facts(), argv=["vllm"])
points = {one.name: str(one.dist.locate_file("")) for one in entry_points(group="vllm.general_plugins")}
print(json.dumps({
    "points": points, "package": kvflags.__file__, "waits for": sorted(_FINDER.waiting), "user": os.getuid(),
    "writes": os.access(sys.argv[1], os.W_OK), "problems": carried.problems, "variant": carried.variant,
}))
"""


@pytest.fixture
def overlay(installed):
    """The folder where any user may read it, as on a volume; pytest's own folders are their owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield shutil.copytree(installed, Path(folder) / "overlay")


def _engine(overlay, *before):
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(overlay),
        # Beside it, and not there: what may write makes it, and it goes with the overlay.
        "HOME": str(overlay.parent / "home"),
        "KVFLAGS_COLLECTOR_URL": "http://127.0.0.1:1",
        "KVFLAGS_DEPLOYMENT": "c/ns/d",
        "KVFLAGS_ON_UNREACHABLE": "wait:0",
        "KVFLAGS_STRICT": "1",
    }
    command = [*before, sys.executable, "-c", ENGINE, str(overlay)]
    ran = subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


# A mount namespace of its own, in which the root is read-only but for a folder that vLLM wants for temporary files, and
# a user who is not root.
_MOUNTS = 'mount -t tmpfs -o mode=1777 tmpfs /mnt && mount -o remount,ro,bind / && TMPDIR=/mnt exec "$@"'
_CONTAINED = ("unshare", "--mount", "sh", "-c", _MOUNTS, "sh")
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def contained():
    """What goes before a command; skips the test where this machine lets nobody make a read-only root."""
    command = [*_CONTAINED, *_NOBODY]
    tried = [*command, sys.executable, "-c", ""]
    if not shutil.which("unshare") or subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("a read-only root needs a root user who may mount, and a Python that others may run")
    return command


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_an_overlay_is_all_that_an_engine_needs(overlay):
    seen = _engine(overlay)
    assert set(seen["points"].items()) >= {("kvflags", str(overlay)), ("kvflags_lab", str(overlay))}
    assert Path(seen["package"]).parent == overlay / "kvflags"
    assert set(seen["waits for"]) >= {"vllm.distributed.kv_transfer.kv_connector.factory", "vllm.v1.engine.async_llm"}


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_an_overlay_does_with_a_read_only_root_and_another_user(overlay, contained):
    before = {path: path.stat().st_mtime_ns for path in overlay.rglob("*")}
    seen = _engine(overlay, *contained)
    assert (seen["user"], seen["writes"]) == (65_534, False)
    assert seen["points"]["kvflags"] == str(overlay)
    assert (seen["variant"], set(seen["problems"])) == ("off", {"unreachable", "state_dir"})
    assert {path: path.stat().st_mtime_ns for path in overlay.rglob("*")} == before


def _needs(name, extras=frozenset()):
    """Everything that a distribution comes to need, with the extras that are asked for on the way."""
    seen, left = set(), [(name, extras)]
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        with suppress(PackageNotFoundError):
            for needed in map(Requirement, distribution(one[0]).requires or ()):
                asked = [{"extra": extra} for extra in one[1] | {""}]
                if needed.marker is None or any(map(needed.marker.evaluate, asked)):
                    left.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return {name for name, _ in seen}


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_page_installs_into_an_overlay_what_vllm_does_not_bring():
    page = (CHECKOUT / "docs" / "engines.md").read_text()
    [snippet] = [text for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S) if "initContainers" in text]
    pod = yaml.safe_load(snippet)["spec"]["template"]["spec"]
    [init], [engine] = pod["initContainers"], pod["containers"]
    command, folder = init["command"], engine["env"][0]["value"]
    own = {
        canonicalize_name(Requirement(one).name) for one in distribution("kvflags").requires if "extra ==" not in one
    }
    [vllm] = packages_distributions()["vllm"]
    assert set(command[command.index(folder) + 1 :]) == {"kvflags", *(own - _needs(canonicalize_name(vllm)))}
    assert "--no-deps" in command
    assert [one["volumeMounts"][0]["mountPath"] for one in (init, engine)] == [folder, folder]
