# SPDX-License-Identifier: Apache-2.0
"""The parts of the hub's page, each a section with an id."""
