"""python nats_mirror.py URL STREAM: prints changes and, when interrupted, the copy."""

import asyncio
import signal
import sys

import nats

from mirror import Copy


async def main(url, stream):
    stopped = asyncio.Event()
    for s in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(s, stopped.set)
    connection = await nats.connect(url, max_reconnect_attempts=-1)
    copy = Copy()

    async def take(message):
        event = copy.apply(message.data, topic=stream)
        if event:
            print(event["type"].split(".")[3], event["collection"], event.get("name", ""), event.get("resourceversion", ""), flush=True)

    # An ordered consumer begins with the stream's first message.
    await connection.jetstream().subscribe("k8s.>", stream=stream, ordered_consumer=True, cb=take)
    await stopped.wait()
    await connection.close()
    print(*copy.lines(), sep="\n")


asyncio.run(main(sys.argv[1], sys.argv[2]))
