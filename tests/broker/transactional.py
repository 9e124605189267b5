"""Transactional producers whose every step is one request, so that a broker can be killed between two of them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from wire import TOO_FEW_REPLICAS, Produced, Wire
from writing import coded

Place: TypeAlias = tuple[str, int]

WAITING_SECONDS = 300
TIMEOUT_MS = 60_000
# A coordinator that loads, or that still writes the markers of the transaction before.
NOT_YET = {14, 15, 16, 51}


@dataclass
class Sent:
    """A transaction as its producer knows it."""

    value: bytes
    """Of its records, and of no others."""
    places: list[Place] = field(default_factory=list)
    """Partitions in which the broker acknowledged records."""
    commit: bool | None = None
    """What the producer asked for; `None` if it did not come to that."""
    answered: bool = False
    """The coordinator has answered: from then on nothing else may come of it."""


class Transactional:
    """One transactional id."""

    def __init__(self, wire: Wire, name: str, *, raises_epoch: bool = False, timeout_ms: int = TIMEOUT_MS) -> None:
        self.name = name
        self.sent: list[Sent] = []
        self._wire = wire
        self._raises_epoch = raises_epoch
        self._sequences: Counter[Place] = Counter()
        end = time.monotonic() + WAITING_SECONDS
        while (answer := wire.init_producer_id(name, timeout_ms))[0] in NOT_YET:
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        assert answer[0] == 0, answer
        self.producer = answer[1:]

    def begin(self, value: bytes) -> None:
        """A transaction whose records will have this value."""
        self.sent.append(Sent(value))

    def send(self, place: Place, count: int = 1) -> bool:
        """Append records to a partition; whether there are enough replicas for it."""
        value = self.sent[-1].value
        answer = self.send_batch(place, count, lambda producer: coded(*[value] * count, producer=producer, attributes=0x10))
        return answer.error not in TOO_FEW_REPLICAS

    def send_batch(self, place: Place, count: int, batch: Callable[[tuple[int, int, int]], bytes]) -> Produced:
        """Append a batch of `count` records, which is given the producer's id and epoch, and its base sequence; what the broker answered."""
        end = time.monotonic() + WAITING_SECONDS
        while (error := self._wire.add_partition(self.name, self.producer, *place)) in NOT_YET:
            assert time.monotonic() < end, error
            time.sleep(0.005)
        assert error == 0, error
        data = batch((*self.producer, self._sequences[place]))
        answer = self._wire.produce(*place, data, transactional_id=self.name)
        if answer.error in TOO_FEW_REPLICAS:
            return answer
        assert answer.error == 0, answer
        self._sequences[place] += count
        self.sent[-1].places.append(place)
        return answer

    def end(self, *, commit: bool) -> None:
        """Ask the coordinator for the end."""
        sent = self.sent[-1]
        sent.commit = commit
        error, epoch = self._wire.end_transaction(self.name, self.producer, commit=commit, raises_epoch=self._raises_epoch)
        assert error == 0, error
        sent.answered = True
        if epoch != self.producer[1]:
            self._sequences.clear()
        self.producer = (self.producer[0], epoch)

    def transact(self, value: bytes, places: list[Place], *, commit: bool) -> None:
        """A whole transaction."""
        self.begin(value)
        for place in places:
            assert self.send(place)
        self.end(commit=commit)


class Sender(threading.Thread):
    """A producer with one transaction after the other until its broker dies."""

    def __init__(self, address: str, name: str, seed: str, places: list[Place], *, raises_epoch: bool) -> None:
        super().__init__(daemon=True)
        self.failure: Exception | None = None
        self._random = random.Random(seed)
        self._seed = seed
        self._places = places
        self._wire = Wire(address)
        self.producer = Transactional(self._wire, name, raises_epoch=raises_epoch)

    def run(self) -> None:
        try:
            with self._wire:
                while self._transaction(len(self.producer.sent)):
                    pass
        except OSError:
            return
        except Exception as failure:  # noqa: BLE001  # whatever it is, the test raises it
            self.failure = failure

    def _transaction(self, number: int) -> bool:
        """One transaction; whether another one shall follow."""
        chosen = self._random
        self.producer.begin(f"{self._seed} {number}".encode())
        for place in chosen.sample(self._places, chosen.randint(1, len(self._places))):
            for _ in range(chosen.randint(1, 2)):
                if not self.producer.send(place, chosen.randint(1, 3)):
                    # As clients do: it is over for this transaction, and some come no further than that.
                    if chosen.random() < 0.5:
                        self.producer.end(commit=False)
                    return False
        if chosen.random() < 0.2:
            time.sleep(0.2)
        self.producer.end(commit=chosen.random() < 0.6)
        time.sleep(chosen.random() * 0.01)
        return True
