"""A copy of clusters' objects, kept by the rules of docs/events.md. The numbers are those of the steps there."""

import hashlib
import json
import sys
import time

TRANSITIONS = {  # step 7: by phase and event
    "unread": {"reset": "open", "resync": "resyncing", "gap": "partial", "synced": "partial"},
    "partial": {"resync": "resyncing"},
    "resyncing": {"gap": "partial", "synced": "in step"},
    "open": {"synced": "in step"},
    "in step": {"gap": "open"},
}


def compare(a, b):
    """-1, 0 or 1; None if the versions are not both numbers and differ."""
    if a == b:
        return 0
    if a.isdigit() and b.isdigit():
        return (int(a) > int(b)) - (int(a) < int(b))
    return None


def newer(a, b):
    """Reports whether (epoch, resourceversion) a is higher than b."""
    return a[0] > b[0] or a[0] == b[0] and compare(a[1], b[1]) == 1


class Partition:
    def __init__(self):
        self.phase = "unread"
        self.run = 0
        self.number = (0, 0)  # run and number of the last synced
        self.synced = None  # (epoch, resourceversion), time, edit


class Collection:
    def __init__(self, resource, incarnation):
        self.resource = resource
        self.incarnation = incarnation
        self.closed = False
        self.run = 0
        self.last = {}  # by subject: run, resourceversion, deleted
        self.objects = {}  # by subject: the event
        self.partitions = {}  # by topic and partition
        self.topics = {}  # how many partitions each has


class Copy:
    """Messages of one partition must come in order, from its beginning."""

    def __init__(self, compacted=False):
        self.compacted = compacted
        self.births = {}  # by cluster
        self.plans = {}  # by source: birth, number, digest
        self.collections = {}  # by cluster and ID
        self.at_end = {}  # by topic and partition

    def apply(self, value, headers=None, topic="", partition=0, partitions=1, at_end=False):
        """Takes a message. Returns the event, or None if it does not count."""
        self.at_end[topic, partition] = at_end
        event = self.decode(value, headers or {})  # 1
        if event is None:
            return None
        self.follow(event)  # 2, 3
        c = self.collection(event)  # 4
        if c is None:
            return None
        kind = event["type"].split(".")[3]
        if kind == "attributed":
            return self.attribute(c, event)
        if kind == "closed":  # 6
            c.closed = True
            c.last, c.objects, c.partitions = {}, {}, {}
            return event
        c.topics[topic] = partitions
        p = c.partitions.setdefault((topic, partition), Partition())
        if "uid" in event:
            return self.of_object(c, p, event, kind)
        return self.of_collection(c, p, event, kind)

    @staticmethod
    def decode(value, headers):
        if not value:
            event = {k[3:]: v for k, v in headers.items() if k[:3] in ("ce_", "ce-")}
        else:
            try:
                event = json.loads(value)
            except ValueError:
                event = None
        if not isinstance(event, dict):  # somebody else wrote it
            return None
        kind = str(event.get("type", "")).split(".")
        known = len(kind) == 5 and kind[:2] == ["io", "kubebridge"] and kind[2] in ("resource", "collection") and kind[-1] == "v1"
        if not known or "deadletterreason" in event:
            return None
        limit = time.time() + 24 * 60 * 60
        numbers = [int(event.get(name, 0)) for name in ("run", "incarnation", "birth", "plan", "edit")]
        if max(numbers) > limit * 1000 or event["time"] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(limit)):
            print("ignored, more than a day ahead of the clock:", event["id"], file=sys.stderr)
            return None
        return event

    def follow(self, event):
        if "birth" not in event:
            return
        cluster, birth = event["cluster"], int(event["birth"])
        if birth < self.births.get(cluster, 0):
            return
        plan = (birth, int(event["plan"]), event["plandigest"])
        if plan[:2] > self.plans.get(event["source"], (0, 0))[:2]:
            self.plans[event["source"]] = plan
        self.births[cluster] = birth
        for key, c in list(self.collections.items()):
            if key[0] == cluster and c.incarnation < birth:
                del self.collections[key]

    def collection(self, event):
        key, incarnation = (event["cluster"], event["collection"]), int(event["incarnation"])
        c = self.collections.get(key)
        if incarnation < self.births.get(event["cluster"], 0):
            return None
        if c is None or incarnation > c.incarnation:
            c = self.collections[key] = Collection(event["source"], incarnation)
        return None if incarnation < c.incarnation or c.closed else c

    @staticmethod
    def attribute(c, event):
        """Notes who made the change that the copy shows."""
        shown = c.objects.get(event["subject"])
        if shown is None or shown["id"] != event["data"]["explains"]:
            return None  # there is a later change
        shown["attribution"] = event["data"]
        return event

    @staticmethod
    def of_object(c, p, event, kind):  # 5
        if p.phase == "unread":
            p.phase = "partial"
        name, run, version, deleted = event["subject"], int(event["run"]), event.get("resourceversion", ""), kind == "deleted"
        p.run, c.run = max(p.run, run), max(c.run, run)
        if name in c.last:
            last_run, last_version, last_deleted = c.last[name]
            order = compare(version, last_version)
            greater = run > last_run or run == last_run and (order in (1, None) or order == 0 and deleted and not last_deleted)
            if not greater:
                return None
        c.last[name] = (run, version, deleted)
        c.objects.pop(name, None)
        if not deleted:
            c.objects[name] = event
        return event

    @staticmethod
    def of_collection(c, p, event, kind):  # 7
        run, version = int(event["run"]), (int(event.get("epoch", 1)), event.get("resourceversion", ""))
        if kind == "gap":
            if run <= p.run:
                return None
            data = event["data"]
            kind = "reset" if data.get("reset") else "resync" if data["reason"] == "resync" else "gap"
        else:
            number = (run, int(event["id"].split(":")[-2]))
            if run < p.run or number <= p.number:
                return None
            p.number = number
            p.synced = (version, event["time"], int(event["edit"]))
        p.phase = TRANSITIONS[p.phase].get(kind, p.phase)
        p.run, c.run = run, max(c.run, run)
        return event

    def objects(self):
        """The union (8): events by source and uid."""
        shown = {}
        for key in sorted(self.collections):
            for event in self.collections[key].objects.values():
                uid = (event["source"], event["uid"])
                version = (int(event.get("epoch", 1)), event.get("resourceversion", ""))
                if uid not in shown or newer(version, shown[uid][0]):
                    shown[uid] = (version, event)
        return {uid: event for uid, (_, event) in shown.items()}

    def in_step(self, c):
        all_read = len(c.partitions) == sum(c.topics.values())
        return all_read and all(p.phase == "in step" and p.run == c.run for p in c.partitions.values()) and (
            len({p.synced[2] for p in c.partitions.values()}) == 1) and (
            not self.compacted or all(self.at_end[place] for place in c.partitions))

    def complete(self, source):
        """(epoch, resourceversion) up to which a resource is complete (9), or None. No version: a part of it did not exist. A source is "/clusters/prod-eu-1/core/pods"."""
        lowest, lines = None, []
        for (_, name), c in sorted(self.collections.items()):
            if c.resource != source or c.closed:
                continue
            if not self.in_step(c):
                return None
            for p in c.partitions.values():
                if lowest is None or lowest[1] and (not p.synced[0][1] or newer(lowest, p.synced[0])):
                    lowest = p.synced[0]
                edit = p.synced[2]
            lines.append(f"{name} {edit}\n")
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
        return lowest if lines and digest == self.plans[source][2] else None

    def lines(self):
        """The copy for people: a line for each object, and one for each resource that is complete."""
        for event in sorted(self.objects().values(), key=lambda e: (e["source"], e["subject"])):
            resource = event["resource"] + ("." + event["group"] if "group" in event else "")
            request = event["data"].get("actor") or event.get("attribution", {}).get("request")
            by = [] if request is None else ["by", json.dumps(request.get("impersonated", request["user"])["name"])]
            yield " ".join(["copy", resource, event.get("namespace", "") + "/" + event["name"], event["uid"], event.get("resourceversion", ""), *by])
        for source in sorted({c.resource for c in self.collections.values()}):
            complete = self.complete(source)
            if complete:
                yield f"complete {source} {complete[1]}"
