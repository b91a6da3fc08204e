# SPDX-License-Identifier: Apache-2.0
"""Transfers become spans, outcomes metrics: names, queue, tallies, the threads that send. Imports nothing of vLLM."""
