"""What a real broker answers to the script of group requests is what was recorded, which the Rust tests hold the coordinator against."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from group_script import RECORDED, SETTINGS, VERSION, play, prepare
from protocol import response

from broker import Broker

MEMBER = re.compile(r"[\w.]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Answers:
    """Answers without what differs from run to run: member ids by their order, no ports, lists sorted."""

    def __init__(self) -> None:
        self._members: dict[str, str] = {}

    def of(self, lines: Iterable[str]) -> list[str]:
        asked: dict[str, tuple[int, int]] = {}
        found = []
        for line in lines:
            if line.startswith("#"):
                found.append(line)
                continue
            _, what, connection, *rest = line.split(" ")
            if what == "send":
                asked[connection] = int(rest[0]), int(rest[1])
            elif what == "recv":
                api, version = asked[connection]
                value = response(api).read(bytes.fromhex(rest[0]), version)
                found.append(f"{connection} {api} {version} {self._plain(value)}")
        return found

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._plain(each) for name, each in value.items() if name != "Port"}
        if isinstance(value, list):
            return sorted((self._plain(each) for each in value), key=str)
        if isinstance(value, str) and MEMBER.fullmatch(value):
            return self._members.setdefault(value, f"member {len(self._members)}")
        return value


@pytest.mark.proof
def test_a_real_broker_answers_as_it_was_recorded(tmp_path: Path) -> None:
    broker = Broker(VERSION, tmp_path / "broker")
    broker.settings = SETTINGS
    broker.format()
    with broker.running():
        prepare(broker.address)
        lines = play(broker.address)
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    assert Answers().of(lines) == Answers().of(recorded)
    print(f"counted {sum(' send ' in line for line in lines)} requests of groups to a broker")
