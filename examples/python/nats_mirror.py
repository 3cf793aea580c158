"""python nats_mirror.py URL STREAM: prints changes and, when interrupted, the copy."""

import asyncio
import signal
import sys

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from mirror import Copy


async def messages(js, stream):
    """The messages of a stream, from the first one on, in order. If a consumer or one of its messages is lost, another
    one continues."""
    last, created = 0, None

    async def check():
        """Ends the program if messages behind the last one may be lost: to skip them would falsify the copy."""
        info = await js.stream_info(stream)
        if last and (info.created != created or not info.state.first_seq - 1 <= last <= info.state.last_seq):
            sys.exit("the stream does not have the next message any more: begin again with an empty copy")
        return info.created

    while True:
        try:
            created = await check()
            consumer = await js.pull_subscribe("k8s.>", stream=stream, config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=last + 1,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=60,
            ))
            delivered = 0
            while True:
                try:
                    batch = await consumer.fetch(500, timeout=1)
                except nats.errors.TimeoutError:
                    await consumer.consumer_info()  # an error if the server has lost the consumer
                    continue
                for message in batch:
                    delivered += 1
                    if message.metadata.sequence.consumer != delivered:
                        raise nats.errors.Error("a message was lost")
                    if last and message.metadata.sequence.stream != last + 1:
                        await check()
                    last = message.metadata.sequence.stream
                    yield message
        except (nats.errors.Error, asyncio.TimeoutError) as e:
            print(f"trying again: {e!r}", file=sys.stderr)
            await asyncio.sleep(1)


async def main(url, stream):
    stopped = asyncio.Event()
    for s in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(s, stopped.set)
    connection = await nats.connect(url, max_reconnect_attempts=-1)
    copy = Copy()

    async def read():
        async for message in messages(connection.jetstream(), stream):
            event = copy.apply(message.data, topic=stream)
            if event:
                print(event["type"].split(".")[3], event["collection"], event.get("name", ""), event.get("resourceversion", ""), flush=True)

    reading = asyncio.create_task(read())
    await asyncio.wait([reading, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        await reading
    reading.cancel()
    await asyncio.wait([reading])
    await connection.close()
    print(*copy.lines(), sep="\n")


asyncio.run(main(sys.argv[1], sys.argv[2]))
