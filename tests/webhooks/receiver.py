"""A backend that receives events, checks their signatures, and answers as a test says."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECRET = "whsec_" + base64.b64encode(b"the secret of the webhooks in tests").decode()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "backend-hooks.md"


def documented_check():
    """The function of the documentation that checks signatures."""
    names = {}
    exec(PAGE.read_text("utf-8").split("```python\n", 1)[1].split("```", 1)[0], names)
    return names["is_genuine"]


is_genuine = documented_check()


class Receiver:
    """Receives on `/events`. `status` and `delay_s` may change at any time; `answer` writes a whole response instead."""

    def __init__(self, port=0, host="127.0.0.1"):
        self.lock = threading.Lock()
        self.status, self.delay_s, self.answer = 204, 0.0, None
        #: Bodies of requests, in the order of their arrival, and those that were taken, by id.
        self.requests, self.forged, self.taken = [], [], {}
        #: Header fields and body of the last request.
        self.last = None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.receive(self, body)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """The node has gone away."""

        self.server = Server((host, port), Handler)
        self.host, self.port = self.server.server_address
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://{self.host}:{self.port}/events"

    def receive(self, handler, body):
        status, delay_s, answer = self.status, self.delay_s, self.answer
        document = json.loads(body)
        with self.lock:
            self.requests.append(document)
            self.last = dict(handler.headers.items()), body
            if not is_genuine(handler.headers, body, SECRET):
                self.forged.append(document)
        if delay_s:
            time.sleep(delay_s)  # the duration of the backend's work
        if 200 <= status < 300:
            with self.lock:
                self.taken.update((event["id"], event) for event in document["events"])
        if answer is not None:
            handler.wfile.write(answer)
            handler.close_connection = True
            return
        handler.send_response(status)
        if status // 100 == 3:
            handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def events(self):
        """What was taken, each event once, in the order of the ids."""
        with self.lock:
            events = list(self.taken.values())
        return sorted(events, key=lambda event: int(event["id"].rsplit("-", 1)[1]))

    def events_by_time(self):
        """As `events`, of several nodes on one machine."""
        return sorted(self.events(), key=lambda event: event["time_ms"])

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
