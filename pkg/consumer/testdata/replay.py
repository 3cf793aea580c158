"""Reads messages as JSON lines, and prints after each what the copy of examples/python/mirror.py is."""

import json
import sys

sys.path.insert(0, sys.argv[1])
from mirror import Copy  # noqa: E402

source = "/clusters/test/core/pods"
copy = Copy()
for line in sys.stdin:
    message = json.loads(line)
    if message.pop("begin"):
        copy = Copy(compacted=message["compacted"])
    del message["compacted"]
    event = copy.apply(**message)
    changed = event is not None and not event["type"].endswith(".attributed.v1")
    objects = [f'{uid}@{event["resourceversion"]}' for (_, uid), event in sorted(copy.objects().items())]
    complete = copy.complete(source)
    print(" ".join(["complete " + complete[1] if complete else "incomplete", str(changed), *objects]))
