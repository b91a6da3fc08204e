# SPDX-License-Identifier: Apache-2.0
"""Transfers become spans: names, failure kinds, the bounded queue, the exporter. Imports nothing of vLLM."""
