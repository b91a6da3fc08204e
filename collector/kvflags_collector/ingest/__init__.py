# SPDX-License-Identifier: Apache-2.0
"""OTLP in: bounded reading (`limits`), protobuf to columns (`decode`), the writer, the routes (`http`, `grpc`)."""
