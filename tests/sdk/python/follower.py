"""Clients that follow channels and print received publications; the arguments and the lines are those of ../js/follower.mjs."""

import asyncio
import json
import sys

from centrifuge import Client, ClientEventHandler, SubscriptionEventHandler


class Follower(SubscriptionEventHandler):
    def __init__(self, client, decode):
        self.client, self.decode = client, decode

    def print(self, **event):
        print(json.dumps({"client": self.client, **event}), flush=True)

    async def on_subscribed(self, context):
        if context.was_recovering:
            self.print(recovered=context.recovered)
        else:
            self.print(begin=context.stream_position.offset)

    async def on_publication(self, context):
        self.print(offset=context.pub.offset, id=self.decode(context.pub.data)["id"])


async def main(url, clients, *channels):
    for number in range(int(clients)):
        is_protobuf = number % 2 == 1
        client = Client(url, events=ClientEventHandler(), use_protobuf=is_protobuf, max_reconnect_delay=2, proxy=None)
        follower = Follower(number, json.loads if is_protobuf else lambda data: data)
        subscription = client.new_subscription(channels[number % len(channels)], events=follower)
        await subscription.subscribe()
        await client.connect()
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
