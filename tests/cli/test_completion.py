# SPDX-License-Identifier: Apache-2.0
"""Completion as the shells ask for it, with flag names from a real collector."""

import os
import socket
import subprocess
import sys

import pytest

_ASKING = {
    "bash": {"COMP_WORDS": "kvflags report cross", "COMP_CWORD": "2"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "kvflags report cross"},
    "fish": {"_TYPER_COMPLETE_ARGS": "kvflags report cross", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}
_ANSWERS = {
    "bash": "cross-layer-blocks\n",
    "zsh": "_arguments '*: :((\"cross-layer-blocks\"))'\n",
    "fish": "cross-layer-blocks\n",
}


def _complete(shell, **environ):
    env = {**os.environ, **_ASKING[shell], "_KVFLAGS_COMPLETE": f"complete_{shell}", **environ}
    command = [sys.executable, "-W", "error", "-c", "import kvflags_cli; kvflags_cli.main()"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("shell", _ASKING)
def test_flag_names(kvflags, fleet, shell):
    kvflags("flags", "create", "cross-layer-blocks", "--feature", "cross_layer_blocks")
    result = _complete(shell)
    assert (result.stdout, result.stderr) == (_ANSWERS[shell], "")


@pytest.mark.parametrize("shell", _ASKING)
def test_a_shell_never_sees_that_the_collector_is_away(free_port, shell):
    result = _complete(shell, KVFLAGS_COLLECTOR_URL=f"http://127.0.0.1:{free_port}")
    assert ("cross" in result.stdout, result.stderr) == (False, "")


@pytest.mark.parametrize("shell", _ASKING)
def test_a_shell_does_not_wait_for_a_collector_that_never_answers(shell):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = _complete(shell, KVFLAGS_COLLECTOR_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert ("cross" in result.stdout, result.stderr) == (False, "")
