# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL of the tests' own: in a temporary folder, reached by a socket there, gone when they are done."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

__all__ = ["Server", "programs"]

_DEBIAN = Path("/usr/lib/postgresql")
# As a server is run, except that it has little memory and, unless a test is about power cuts, syncs nothing.
_SETTINGS = {"listen_addresses": "", "max_connections": 200, "shared_buffers": "32MB", "jit": "off"}
_FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "1GB", "autovacuum": "off"}


def programs() -> Path | None:
    """The folder of initdb and postgres: Debian's newest, else that on the PATH; None where there is none."""
    versions = sorted(_DEBIAN.glob("[0-9]*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Server:
    """Made empty and started; `stop` stops it and removes everything. `durable`: it syncs as a real one does."""

    def __init__(self, *, durable: bool = False) -> None:
        found = programs()
        assert found is not None, "ask programs() first"
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="kvflags-pg-"))
        self._settings = _SETTINGS | ({} if durable else _FAST) | {"unix_socket_directories": self.folder}
        self._user = _somebody_else() if os.geteuid() == 0 else None
        if self._user:
            os.chown(self.folder, self._user, -1)
        made = [found / "initdb", "--username=kvflags", "--auth=trust", "--no-sync", "--locale=C.UTF-8"]
        self._run([*made, "-D", self.folder / "data"])
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql://kvflags@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Outside of any transaction, in the database that is always there."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload] - psycopg wants literals

    def start(self) -> None:
        """Returns once it answers, with whatever a crash left recovered."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            command = [self._programs / "postgres", "-D", self.folder / "data", *settings]
            self._process = subprocess.Popen(command, user=self._user, cwd="/", stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._answers():
            gone = self._process.poll() is not None or time.monotonic() > deadline
            assert not gone, (self.folder / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut ends it, for its own processes: none gets to write anything more."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in [self._process.pid, *map(int, children)]:
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            # Immediate: what is in it is not wanted any more.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: list[str | Path]) -> None:
        done = subprocess.run(command, user=self._user, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def _somebody_else() -> int:
    """PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise AssertionError("no user to run PostgreSQL as")
