"""Handlers of the kind that kopf's users write: they print each event of ConfigMaps and of a custom resource as a line of JSON, and write nothing to
the cluster."""

import json
import os

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.posting.enabled = False
    settings.watching.initial_streaming = os.environ["STREAMED"] == "true"


@kopf.on.event("", "v1", "configmaps")
@kopf.on.event("shop.example.com", "v1", "widgets")
async def seen(event, **_):  # async: kopf runs other handlers in threads, which would mix their lines
    event["object"]["metadata"].pop("managedFields", None)  # they are not on the bus
    print("seen " + json.dumps(event, sort_keys=True), flush=True)
