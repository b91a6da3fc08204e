# SPDX-License-Identifier: Apache-2.0
"""kvflags inside an engine: decide, apply, verify, measure.

This package is imported in every process of vLLM, before anything is known about the model. It therefore imports
neither torch nor vllm, starts no thread and does no I/O at import. What may import what: `flags` imports nothing of
ours; `features` imports `flags`; `decision` and `telemetry` import those two; `connector` ties them to vLLM.
"""

from kvflags._version import __version__

__all__ = ["__version__"]
