"""A plugin of pytest for kafka-python's own integration tests, which its sdist has without their helper that starts brokers.

`KAFKA_URI` names the broker that is there. Four partitions a topic, which its group tests count on.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any
from urllib.parse import urlparse


class Running:
    """What the tests ask of their `KafkaFixture`."""

    partitions = 4
    replicas = 1
    zookeeper = None

    def __init__(self) -> None:
        where = urlparse(os.environ["KAFKA_URI"])
        self.host, self.port = where.hostname, where.port

    @classmethod
    def instance(cls, *_: object, **__: object) -> Running:
        return cls()

    def bootstrap_server(self) -> str:
        return f"{self.host}:{self.port}"

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_server(), **defaults, **params}

    def close(self) -> None:
        """Its owner does."""


def pytest_load_initial_conftests() -> None:
    """Before the tests' conftest looks: their folder is a package, not Python's own of that name."""
    package = types.ModuleType("test")
    package.__path__ = [os.path.join(os.getcwd(), "test")]
    sys.modules["test"] = package
    service = types.ModuleType("test.service")
    service.ExternalService = service.SpawnedService = object  # type: ignore[attr-defined]
    sys.modules["test.service"] = service
    fixtures: Any = importlib.import_module("test.integration.fixtures")
    fixtures.KafkaFixture = Running
