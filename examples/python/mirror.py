"""A copy of a cluster's objects, kept by the consumer's rule of docs/events.md."""

import json


def number(version):
    """(epoch, resourceVersion), comparable; None where it is no number."""
    epoch, rv = version
    return (epoch, int(rv)) if rv.isdigit() else None


def older(a, b):
    a, b = number(a), number(b)
    return a is not None and b is not None and a < b


class Copy:
    """Messages of one partition must come in order, from its beginning."""

    def __init__(self):
        self.objects = {}  # by uid: the event
        self.known = {}  # by uid: [version, ids told at it, where from], also of what is gone
        self.said = set()  # ids of the resets, by partition
        self.in_step = {}  # by collection and partition: resourceVersion, or None in a gap

    def apply(self, value, partition=0):
        """Takes a message's value. Returns the event, or None if it says nothing new."""
        if not value:  # a tombstone
            return None
        event = json.loads(value)
        kind = event["type"].split(".")
        if kind[:2] != ["io", "kubebridge"] or kind[-1] != "v1" or "deadletterreason" in event:
            return None
        if kind[2] == "collection":
            return self.of_collection(event, kind[3], partition)
        return self.of_object(event, kind[3], partition)

    def of_object(self, event, kind, partition):
        uid = (event["source"], event["uid"])
        version = (int(event.get("epoch", 1)), event["resourceversion"])
        known = self.known.get(uid)
        if known and (older(version, known[0]) or event["id"] in known[1]):
            return None
        where = (event["cluster"], event["collection"], partition)
        if known is None or kind != "deleted" and version != known[0]:
            known = [version, set(), where]
        known[1].add(event["id"])
        known[2] = where
        self.known[uid] = known
        if kind == "deleted":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = event
        return event

    def of_collection(self, event, kind, partition):
        where = (event["cluster"], event["collection"], partition)
        if kind == "gap" and event["data"].get("reset"):
            if (where, event["id"]) in self.said:
                return None
            self.said.add((where, event["id"]))
            for uid in [u for u, k in self.known.items() if k[2] == where]:
                del self.known[uid]
                self.objects.pop(uid, None)
        self.in_step[where] = event["resourceversion"] if kind == "synced" else None
        return event

    def lines(self):
        for event in sorted(self.objects.values(), key=lambda e: (e["source"], e["subject"])):
            resource = event["resource"] + ("." + event["group"] if "group" in event else "")
            yield " ".join(["copy", resource, event.get("namespace", "") + "/" + event["name"], event["uid"], event["resourceversion"]])
