"""Publishes numbers in channels in turn, until its input ends: publisher.py URL CHANNELS PER_SECOND. Then it prints how many.

$API_KEY is that of Dunlin. It runs in the network of a machine, because Dunlin's API is not open to the outside. An attempt that was not
answered is repeated with the same idempotency key, so that each number is published once.
"""

import json
import os
import sys
import threading
import time
import urllib.request

PATIENCE_S = 8
PAUSE_S = 0.05  # between two attempts
ATTEMPTS_MAX = 2000


def publish(url, channel, number, key):
    body = {"channel": f"drain:{channel}", "data": {"number": number}, "idempotency_key": f"{key}-{number}"}
    headers = {"Content-Type": "application/json", "X-API-Key": os.environ["API_KEY"], "Connection": "close"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        answer = json.load(response)
    if not answer.get("result", {}).get("offset"):
        raise ValueError(answer)


def main():
    url, channels, per_second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    began, count, retries, key = time.monotonic(), 0, 0, time.time_ns()
    while not ended.wait(max(0.0, began + count / per_second - time.monotonic())):
        for attempt in range(ATTEMPTS_MAX):
            try:
                publish(url, count % channels, count, key)
                break
            except (OSError, ValueError) as error:
                retries += 1
                if attempt == ATTEMPTS_MAX - 1:
                    sys.exit(f"publication {count} was not taken: {error}")
                time.sleep(PAUSE_S)
        count += 1
    print(json.dumps({"count": count, "retries": retries}))


if __name__ == "__main__":
    main()
