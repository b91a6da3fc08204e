# SPDX-License-Identifier: Apache-2.0
"""A real `kvflags serve` under load, on databases and disks of its own that may be taken away."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from load import Load, stored, waiting
from postgres_server import Server, programs

_SEED = int(os.environ.get("KVFLAGS_SOAK_SEED", "1"))


@contextmanager
def serving(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(process, address) of a collector that is ready; killed at the end if it still runs."""
    command = [sys.executable, "-m", "kvflags_cli", "serve", "--port", "0", "--db", url, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "it did not start"
            yield process, line.split()[4]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def serve() -> Callable[..., object]:
    return serving


@pytest.fixture
def load() -> Iterator[Load]:
    with Load() as running:
        yield running


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/kvflags.db"


@pytest.fixture
def times() -> range:
    """How often each of the five tests does harm: KVFLAGS_SOAK_KILLS; once in every run."""
    return range(int(os.environ.get("KVFLAGS_SOAK_KILLS", "1")))


@pytest.fixture
def moments() -> random.Random:
    """When to: KVFLAGS_SOAK_SEED."""
    return random.Random(_SEED)


@pytest.fixture
def finish(load) -> Callable[[subprocess.Popen[str], str], None]:
    """finish(process, url): a last load, then all that was acknowledged must be stored once and be in the roll-ups."""

    def check(process: subprocess.Popen[str], url: str) -> None:
        load.grows(1)
        load.stop()
        end = time.monotonic() + 60
        while waiting(url)[1]:
            assert time.monotonic() < end, "minutes stay dirty"
            time.sleep(0.2)
        process.terminate()
        assert process.wait(60) == 0
        _kept(load, url)
        # A span is a transfer here, so the roll-ups count as many as there are.
        assert waiting(url) == (len(stored(url)["traces"]), 0)

    return check


def _kept(load: Load, url: str) -> None:
    for signal_name, names in stored(url).items():
        assert len(names) == len(set(names)), signal_name
        assert load.acknowledged[signal_name] <= set(names), signal_name


@pytest.fixture
def kept(load, url) -> Callable[[], None]:
    """Asserts that whatever was acknowledged is stored, and nothing twice."""
    return lambda: _kept(load, url)


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL that syncs, with an empty database `kvflags`."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql-15")
    running = Server(durable=True)
    running.execute("CREATE DATABASE kvflags")
    yield running
    running.stop()


class Disk:
    """A file system of its own, of `size_mib`."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "kvflags", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("a file system that is full takes the right to mount one (root)")

    def fill(self, left: int) -> None:
        """But for so many bytes, as something else on the machine might."""
        with self._ballast.open("wb") as ballast:
            # Who else writes meanwhile may have taken some of what was free.
            while (size := _free(self.folder) - left) > 0:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(ballast.fileno(), 0, size)
                    return

    def clear(self) -> None:
        self._ballast.unlink()

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)


def _free(folder: Path) -> int:
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = Disk(folder, 64)
    yield made
    made.remove()


@pytest.fixture
def kill() -> Callable[[subprocess.Popen[str]], None]:
    def now(process: subprocess.Popen[str]) -> None:
        process.kill()
        assert process.wait() == -signal.SIGKILL

    return now
