"""python kafka_mirror.py BROKER '^k8s\\.': prints changes and, when interrupted, the copy."""

import signal
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from mirror import Copy


def stop(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, stop)
consumer = Consumer({
    "bootstrap.servers": sys.argv[1],
    "group.id": "kubebridge-mirror",  # nothing is committed: a copy in memory begins at the beginning
    "enable.auto.commit": False,
    "auto.offset.reset": "error",  # to skip what is lost would falsify the copy
    "isolation.level": "read_committed",  # others see aborted transactions
    "topic.metadata.refresh.interval.ms": 5000,  # how soon a new topic is noticed
})


def from_start(consumer, partitions):
    for p in partitions:
        p.offset = OFFSET_BEGINNING
    consumer.assign(partitions)


copy = Copy()
partitions = {}  # by topic: the bridge does not change their number
try:
    consumer.subscribe([sys.argv[2]], on_assign=from_start)
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            if message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                sys.exit("the topic does not have the next record any more: begin again with an empty copy")
            raise KafkaException(message.error())
        topic = message.topic()
        if topic not in partitions:
            partitions[topic] = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        headers = {name: value.decode() for name, value in message.headers() or []}
        event = copy.apply(message.value(), headers, topic, message.partition(), partitions[topic])
        if event:
            print(event["type"].split(".")[3], event["collection"], event.get("name", ""), event.get("resourceversion", ""), flush=True)
except KeyboardInterrupt:
    print(*copy.lines(), sep="\n")
finally:
    consumer.close()
