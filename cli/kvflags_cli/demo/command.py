# SPDX-License-Identifier: Apache-2.0
"""`kvflags demo`: the scene with its progress, the report at its end, and the collector left up until stopped."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kvflags.errors import KvflagsError, OperatorError
from kvflags_cli.demo.engine import EngineError
from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.scene import FLAG, Step, scene
from kvflags_cli.demo.service import Service
from kvflags_cli.options import AsJson
from kvflags_cli.output import say, show

__all__ = ["demo"]

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        envvar="KVFLAGS_DEMO_FOLDER",
        help="Where the database, the logs and the model go, and stay; else a temporary one, removed at the end.",
    ),
]
Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The collector's port; 0: any that is free.")
]
Once = Annotated[
    bool,
    typer.Option("--once", envvar="KVFLAGS_DEMO_ONCE", help="End after the report; else the collector is left up."),
]


def demo(*, folder: Folder = None, port: Port = 0, once: Once = False, as_json: AsJson = False) -> None:
    """Roll cross-layer blocks out to one of two real deployments on this machine, and print the report.

    Ten vLLM engines on CPU, NIXL transfers between them, one collector on SQLite. About nine minutes on two cores.
    """
    _check()
    own = folder is None
    place = folder or Path(tempfile.mkdtemp(prefix="kvflags-demo-"))
    service = Service(place / "kvflags.db", place / "logs" / "collector.log", port=port or free_port())
    with ExitStack() as stack:
        say(f"Collector at {service.url}; logs and database in {place}")
        service.start()
        stack.callback(service.stop)
        try:
            _play(place, service)
        except EngineError as error:
            raise KvflagsError(str(error), hint=f"the logs are in {place / 'logs'}") from error
        with service.client() as client:
            show("report", client.get("flags", FLAG, "report"), as_json=as_json)
        if not once:
            _stay(service)
    if own:
        shutil.rmtree(place, ignore_errors=True)


def _check() -> None:
    for module, extra in (("vllm", "vLLM"), ("nixl", "NIXL")):
        if find_spec(module) is None:
            raise OperatorError(f"the demo needs {extra}, which is not installed here", hint="`make demo` installs it")
    if os.environ.get("KVFLAGS_DISABLED"):
        raise OperatorError("KVFLAGS_DISABLED is set, so no engine would take part", hint="unset it for the demo")


def _play(folder: Path, service: Service) -> None:
    with ExitStack() as engines:
        for number, step in enumerate(scene(folder, service, engines), 1):
            _run(number, step)


def _run(number: int, step: Step) -> None:
    """One line when a step begins, one when it is done: the same on a terminal and in a log."""
    say(f"{number:>3}. {step.title} ...")
    begin = time.monotonic()
    outcome = step.run()
    say(f"     {outcome}  [{time.monotonic() - begin:.0f} s]")


def _stay(service: Service) -> None:
    say(f"\nThe collector stays up. Page: {service.url}/rollouts/{FLAG}   Stop it with Ctrl-C.")
    say(f"Ask it:  kvflags report {FLAG} --collector {service.url}")
    if service.token_file:
        say(f"To change anything on the page, sign in with the token in {service.token_file}")
    try:
        service.wait()
    except KeyboardInterrupt:
        say("\nStopping.")
