"""A network that delays and loses packets, without `tc netem`: a TUN device and a thread. Needs root and a network namespace of its own."""

import fcntl
import heapq
import itertools
import os
import struct
import subprocess
import threading
import time

#: The server's address, and the one at which clients find it through this network.
NEAR, FAR = "10.77.0.1", "10.77.0.2"

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 2_048


class SlowNetwork:
    """Packets to `FAR` come back from `FAR`: source and destination are exchanged, which keeps the checksums valid. So both ends
    of a connection are on this machine, and each packet passes this thread twice."""

    def __init__(self):
        self.delay_s, self.lose_each, self.is_cut = 0.0, 0, False
        self.device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH", b"slow0", IFF_TUN | IFF_NO_PI))
        for command in (f"addr add {NEAR}/24 dev slow0", "link set dev slow0 mtu 1500 up"):
            subprocess.run(["ip", *command.split()], check=True)
        self.due, self.numbers, self.large = [], itertools.count(), 0
        self.changed = threading.Condition()
        for work in (self.take, self.give):
            threading.Thread(target=work, daemon=True).start()

    def take(self):
        while True:
            packet = os.read(self.device, PACKET_BYTES_MAX)
            if packet[0] >> 4 != 4 or self.is_lost(packet):
                continue
            swapped = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
            with self.changed:
                heapq.heappush(self.due, (time.monotonic() + self.delay_s, next(self.numbers), swapped))
                self.changed.notify()

    def is_lost(self, packet):
        """Loses data, not acknowledgements, so that the loss is what the server's kernel counts."""
        if self.is_cut:
            return True
        if not self.lose_each or len(packet) < 1_000:
            return False
        self.large += 1
        return self.large % self.lose_each == 0

    def give(self):
        while True:
            with self.changed:
                while not self.due or self.due[0][0] > time.monotonic():
                    self.changed.wait(self.due[0][0] - time.monotonic() if self.due else None)
                _, _, packet = heapq.heappop(self.due)
            os.write(self.device, packet)
