# SPDX-License-Identifier: Apache-2.0
"""Programs of the system that tests run and a machine may lack: what needs one is skipped there, and counted."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

__all__ = ["absent", "program"]

# Set by .ci/run, which installs all of them: there, a skip would be a hole that nobody sees.
_EVERYTHING = "KVFLAGS_TEST_EVERYTHING"


def program(name: str, package: str) -> str:
    """Where it is; skips the test, or fails it in CI, where it is not installed."""
    return shutil.which(name) or absent(name, package)


def absent(name: str, package: str) -> NoReturn:
    """What is needed and not there ends the test."""
    says = f"{name} is not installed: apt-get install --no-install-recommends {package}"
    if os.environ.get(_EVERYTHING):
        pytest.fail(says)
    pytest.skip(says)
