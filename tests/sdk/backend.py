"""A backend for the server's hooks, with responses that the tests define.

The server sends requests to `/hook/KIND`. A test first defines the responses to requests about a channel, user, method or, for
connect, the `about` in the client's data. Each test must use a unique one:

    POST /answers  {"kind": "connect", "about": "x", "answers": [ANSWER, ...]}
    POST /asked    {"kind": "connect", "about": "x"}     -> [{"question": {...}, "headers": {...}}, ...] so far

An ANSWER is the response body, `{"result": ...}` and so on, or `{"status": 500}`; `"after_s": 1` delays it. The last of the
answers is repeated. A request without a defined answer gets status 404.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Backend:
    def __init__(self):
        self._lock = threading.Lock()
        self._answers = {}
        self._asked = {}
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Small responses are sent at once.
            disable_nagle_algorithm = True

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = backend.answer(self.path, body, self.headers)
                encoded = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # The length of the accept queue, for many concurrent connections.
            request_queue_size = 256

            def handle_error(self, request, client_address):
                # The requester may have disconnected.
                if not isinstance(sys.exc_info()[1], ConnectionError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path, body, headers):
        if path == "/answers":
            with self._lock:
                self._answers[body["kind"], body["about"]] = list(body["answers"])
                self._asked[body["kind"], body["about"]] = []
            return 200, {}
        if path == "/asked":
            with self._lock:
                return 200, self._asked.get((body["kind"], body["about"]), [])
        return self._hook(path.removeprefix("/hook/"), body, headers)

    def _hook(self, kind, question, headers):
        data = question.get("data")
        abouts = [question.get(field) for field in ("channel", "method", "user")]
        abouts.append(data.get("about") if isinstance(data, dict) else None)
        with self._lock:
            key = next((key for about in abouts if (key := (kind, about)) in self._answers), None)
            if key is None:
                return 404, {}
            self._asked[key].append({"question": question, "headers": {k.lower(): v for k, v in headers.items()}})
            answers = self._answers[key]
            answer = dict(answers.pop(0) if len(answers) > 1 else answers[0])
        time.sleep(answer.pop("after_s", 0))
        return answer.pop("status", 200), answer
