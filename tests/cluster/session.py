"""A client of the WebSocket protocol in JSON, without a thread: it reads while it waits for a message."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from servers import Failed  # noqa: E402

from wire import Frames, client_frame, open_websocket  # noqa: E402

#: Seconds that a publication takes until NATS has acknowledged or refused it.
ANSWER_TIMEOUT_S = 60


class Client:
    """A session on one node."""

    def __init__(self, node, connect=None):
        self.connection, self.frames, self.read, self.number = open_websocket(node.port), Frames(), [], 0
        self.ask("connect", connect or {})

    def ask(self, method, params):
        self.number += 1
        number = self.number
        self.connection.sendall(client_frame(1, json.dumps({"id": number, method: params}).encode()))
        return self.wait(lambda message: message.get("id") == number)

    def subscribe(self, channel, position=None):
        """The reply to a subscription, which the cluster may refuse for a while."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        params = {"channel": channel}
        if position:
            params |= {"recover": True, "offset": position[0], "epoch": position[1]}
        while time.monotonic() < deadline:
            reply = self.ask("subscribe", params)
            if "error" not in reply:
                return reply["subscribe"]
            if reply["error"]["code"] not in (100, 111):
                raise Failed(f"subscribe is answered with {reply}")
            time.sleep(0.05)  # between two attempts
        raise Failed(f"no subscription to {channel} in {ANSWER_TIMEOUT_S} s")

    def wait(self, is_wanted):
        while True:
            for message in self.read:
                if is_wanted(message):
                    self.read.remove(message)
                    return message
            read = self.connection.recv(65_536)
            if not read:
                raise Failed("the node has closed the connection")
            for _, payload in self.frames.take(read):
                for line in payload.decode().splitlines():
                    message = json.loads(line)
                    if message:
                        self.read.append(message)
                    else:
                        self.connection.sendall(client_frame(1, b"{}"))

    def wait_for_end(self, channel):
        """Waits until the server has ended the subscription."""
        self.wait(lambda message: "unsubscribe" in message.get("push", {}) and message["push"]["channel"] == channel)

    def close(self):
        self.connection.close()
