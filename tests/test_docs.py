# SPDX-License-Identifier: Apache-2.0
"""The reference pages say what the code does: they are generated from it, and nobody forgot to."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def _generate(script, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_reference_is_up_to_date():
    result = _generate(DOCS / "generate.py", "--check")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.fixture
def copy(tmp_path):
    """The script beside pages of its own."""
    script = tmp_path / "docs" / "generate.py"
    script.parent.mkdir()
    for name in ("generate.py", "compatibility.py"):
        (script.parent / name).write_bytes((DOCS / name).read_bytes())
    return script


def test_a_page_that_differs_is_named(copy):
    assert _generate(copy).returncode == 0
    page = copy.parent / "reference" / "settings.md"
    page.write_text(page.read_text() + "by hand")
    result = _generate(copy, "--check")
    assert (result.returncode, result.stderr) == (
        1,
        "error: differs from the code: docs/reference/settings.md\n\nhint: make docs\n",
    )


def test_the_readme_shows_the_transcript(copy):
    readme = copy.parents[1] / "README.md"
    readme.write_text("a\n<!-- transcript: begin (b) -->\nold\n<!-- transcript: end -->\nc\n")
    (copy.parent / "demo-transcript.txt").write_text("$ kvflags demo\n")
    assert _generate(copy).returncode == 0
    assert readme.read_text() == (
        "a\n<!-- transcript: begin (b) -->\n\n```text\n$ kvflags demo\n```\n\n<!-- transcript: end -->\nc\n"
    )
    assert _generate(copy, "--check").returncode == 0


def test_the_matrix_says_what_is_switched_and_what_runs_here():
    lines = (DOCS / "reference" / "compatibility.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| 0.")]
    rows = {tuple(map(int, row[0].split(".")[:2])): row for row in cells}
    assert list(rows) == [(0, minor) for minor in range(22, 34)]
    for release, (_, mechanism, connectors, gqa, one_head, mla, tests) in rows.items():
        layouts = release >= (0, 29)
        assert mechanism == ("`get_required_kvcache_layout`" if layouts else "`prefer_cross_layer_blocks`")
        assert ("NixlPushConnector" in connectors) == (release >= (0, 24))
        assert gqa.startswith("switched, `BHLNC`" if layouts else "observed: `release`")
        assert one_head.startswith("switched") == (release == (0, 29))
        assert mla.startswith("switched") == (release in {(0, 29), (0, 33)})
        assert tests.startswith("engines for real") == (release == (0, 32))


_ROWS = [line.split("|") for line in (DOCS / "rollout-semantics.md").read_text().splitlines() if line.startswith("|")]
PROMISES = [int(row[1]) for row in _ROWS if row[1].strip().isdigit()]
SHOWN = [row[-2].strip().strip("`") for row in _ROWS if "::" in row[-2]]


def test_every_promise_about_rollouts_has_its_row():
    assert list(range(1, 26)) == PROMISES
    # And the eleven scenes, and the fifteen requests.
    assert len(SHOWN) == 25 + 11 + 15


@pytest.mark.parametrize("shown", SHOWN)
def test_the_test_that_shows_a_promise_exists(shown):
    path, _, name = shown.partition("::")
    source = (DOCS.parent / "tests" / path).read_text()
    assert f"def {name}(" in source or f"\n{name} = " in source
