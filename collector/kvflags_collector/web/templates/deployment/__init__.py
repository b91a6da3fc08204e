# SPDX-License-Identifier: Apache-2.0
"""The parts of a deployment's page, each a section with an id."""
