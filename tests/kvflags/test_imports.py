# SPDX-License-Identifier: Apache-2.0
"""Imports: what the host pays for ours, and patches that wait for their target."""

import subprocess
import sys
import textwrap

import pytest

HEAVY = ("torch", "vllm", "sqlalchemy", "typer", "rich", "fastapi", "pydantic", "grpc", "numpy")


@pytest.mark.parametrize(
    "module", ["kvflags", "kvflags.flags", "kvflags.features", "kvflags.lab", "kvflags.connector.plugin"]
)
def test_importing_ours_imports_nothing_heavy(module):
    script = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_callback_runs_once_its_module_is_imported(tmp_path):
    (tmp_path / "late.py").write_text("VALUE = 1\n")
    script = """
        import sys
        from kvflags.imports import when_imported
        def mark(module): print("patched", module.__name__, module.VALUE, type(module.__loader__).__name__)
        def fails(module): raise RuntimeError("must not reach the host")
        when_imported("late", mark); when_imported("late", mark); when_imported("late", fails)
        assert "late" not in sys.modules
        import late
        print("imported", late.VALUE)
        when_imported("late", mark)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert ran.stdout == "patched late 1 SourceFileLoader\nimported 1\npatched late 1 SourceFileLoader\n"
    assert "could not be patched" in ran.stderr


def test_a_module_that_does_not_exist_still_fails_as_ever(tmp_path):
    script = "from kvflags.imports import when_imported; when_imported('absent_module', print); import absent_module"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "ModuleNotFoundError: No module named 'absent_module'" in ran.stderr
