# SPDX-License-Identifier: Apache-2.0
"""Real engines and a real collector, started once a module: a pair takes about 45 s to start on two cores."""

from pathlib import Path

import pytest
from fleet import Fleet


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """In the order written: a scene builds on what the one before it started."""
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    ordered = iter(sorted(ours, key=lambda item: (item.path.name, item.location[1], item.name)))
    items[:] = [next(ordered) if item in ours else item for item in items]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    one = Fleet(tmp_path_factory.mktemp("fleet", numbered=True))
    yield one
    one.stop()
