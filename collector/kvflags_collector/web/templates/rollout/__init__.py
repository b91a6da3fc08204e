# SPDX-License-Identifier: Apache-2.0
"""The parts of a rollout's page, each a section with an id."""
