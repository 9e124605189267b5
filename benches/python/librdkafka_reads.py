"""Reads a topic from its start with librdkafka, and ends after a number of records: `librdkafka_reads.py TOPIC COUNT --bootstrap-server ADDRESS`."""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

AT_ONCE = 10_000
SECONDS = 30


def main() -> int:
    """Reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--bootstrap-server", required=True)
    arguments = parser.parse_args()
    # By default it pauses for a second whenever 100,000 messages are queued, and that would be what is measured.
    queue = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 1 << 20}
    consumer = Consumer({"bootstrap.servers": arguments.bootstrap_server, "group.id": "bench", "enable.auto.commit": False, **queue})
    partitions = consumer.list_topics(arguments.topic, SECONDS).topics[arguments.topic].partitions
    consumer.assign([TopicPartition(arguments.topic, partition, OFFSET_BEGINNING) for partition in partitions])
    left = arguments.count
    while left > 0:
        # It waits for as many as it is asked for.
        messages = consumer.consume(min(AT_ONCE, left), SECONDS)
        if not messages:
            print(f"{left} records did not come", file=sys.stderr)
            return 1
        for message in messages:
            if message.error() is not None:
                print(message.error(), file=sys.stderr)
                return 1
        left -= len(messages)
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
