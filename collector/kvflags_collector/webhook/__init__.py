# SPDX-License-Identifier: Apache-2.0
"""Telling another program what happens to a rollout. What is told is found in what is stored, never handed over.

So a decision waits for nobody, and a collector that is killed after one leaves it to be found by the next.
"""
