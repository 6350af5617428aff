"""Publishers of a cluster under faults. They record acknowledgements, and a test can wait for these."""

import http.client
import json
import threading
import time

from servers import Api, Failed

BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError)
#: Number of acknowledged publications between two faults.
STEP = 150
STEP_TIMEOUT_S = 90
QUIET_TIMEOUT_S = 90
#: Temporary errors, and error 112 for a lost position, after which clients retry.
TEMPORARY = {100, 111, 112, 503}


class Publisher(threading.Thread):
    """Publishes sequentially, and changes to another node after an error."""

    def __init__(self, name, channel, world, pause_s=0):
        super().__init__(daemon=True)
        self.name, self.channel, self.world, self.pause_s = name, channel, world, pause_s
        self.number, self.acknowledged, self.refused = 0, [], 0

    def run(self):
        while not self.world.is_over:
            try:
                self.publish_at(self.world.any_node())
            except BROKEN:
                time.sleep(0.02)  # the next node

    def publish_at(self, node):
        api = Api(node.port, node.host)
        try:
            while not self.world.is_over:
                self.number += 1
                identity = f"{self.name}/{self.number}"
                answer = api.ask("publish", {"channel": self.channel, "data": {"id": identity}})
                if "error" in answer:
                    self.refused += 1
                    if answer["error"]["code"] not in TEMPORARY:
                        raise Failed(f"{identity} is answered with {answer['error']}")
                    raise OSError("this node cannot publish now")
                self.acknowledged.append((answer["result"]["offset"], identity))
                self.world.acknowledged(1)
                if self.pause_s:
                    time.sleep(self.pause_s)  # the rate
        except Failed as failure:
            self.world.fail(failure)
            raise OSError from failure
        finally:
            api.close()


class World:
    def __init__(self, cluster, chance):
        self.cluster, self.random = cluster, chance
        self.is_over, self.failures, self.down, self.step = False, [], set(), STEP
        self.count, self.listening, self.changed = 0, 0, threading.Condition()

    def any_node(self):
        return self.random.choice([node for node in self.cluster.nodes if node not in self.down])

    def fail(self, failure):
        with self.changed:
            self.failures.append(failure)
            self.changed.notify_all()

    def raise_failure(self):
        if self.failures:
            raise self.failures[0]

    def acknowledged(self, count):
        with self.changed:
            self.count += count
            self.changed.notify_all()

    def subscribed(self):
        with self.changed:
            self.listening += 1
            self.changed.notify_all()

    def wait(self, what, is_so, timeout_s=STEP_TIMEOUT_S):
        with self.changed:
            if not self.changed.wait_for(lambda: self.failures or is_so(), timeout_s):
                raise Failed(f"not in {timeout_s} s: {what}; {self.count} are acknowledged")
        self.raise_failure()

    def make_progress(self, what):
        wanted = self.count + STEP
        began = time.monotonic()
        self.wait(f"{STEP} acknowledged publications {what}", lambda: self.count >= wanted)
        return time.monotonic() - began


class Over:
    """A view of the world in which publishing is over, while subscribers continue."""

    def __init__(self, world):
        self.world, self.is_over = world, True

    def __getattr__(self, name):
        return getattr(self.world, name)


def whole_history(api, channel, top):
    """The epoch and the history, when the node has received the last acknowledged publication. Its connection may have been lagging."""
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    while True:
        epoch, offset, found = api.history(channel)
        if offset >= top or time.monotonic() > deadline:
            return epoch, [(offset, data["id"]) for offset, data in found]
        time.sleep(0.05)  # between two checks
