"""A plugin of pytest for aiokafka's own integration tests, which start a broker by Docker where nobody gives them one.

`KAFKA_ADDRESS` names the broker that is there. What needs another one (TLS, SASL, ACLs) is left out, and so is what needs none.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest

NEEDS = "kafka_server"
NEEDS_ANOTHER = {"acl_manager", "kafka_config", "kerberos_utils"}


@pytest.fixture(scope="session")
def kafka_server() -> types.SimpleNamespace:
    """What the tests ask of their own: addresses. Only the one without encryption is there."""
    host, _, port = os.environ["KAFKA_ADDRESS"].rpartition(":")
    return types.SimpleNamespace(
        host=host, port=int(port), hosts=[f"{host}:{port}"], ssl_port=0, sasl_plain_port=0, sasl_ssl_port=0, container=None
    )


@pytest.fixture(scope="session")
def nothing() -> None:
    """In the place of what would need a container."""


def pytest_load_initial_conftests() -> None:
    """Their conftest wants Docker's library for a type and for what is replaced."""
    docker: Any = types.ModuleType("docker")
    docker.models = types.SimpleNamespace(containers=types.SimpleNamespace(Container=object))
    sys.modules["docker"] = docker


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin: object) -> None:
    """Before pytest looks for the fixtures of their conftest."""
    if getattr(plugin, "__name__", "") == "tests.conftest":
        conftest: Any = plugin
        conftest.kafka_server = kafka_server
        for name in ("ssl_folder", *NEEDS_ANOTHER):
            setattr(conftest, name, nothing)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only those that ask a broker."""
    left = [item for item in items if NEEDS not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
