"""A proxy for the TCP connections between two nodes of a bed, which changes, delays or cuts bytes of one of them. Knows no protocol.

Node 0 and node 1 do not share a link: each sees the proxy under the address of the other. The proxy has a namespace on either side,
listens there at all ports of a range, and connects onward from the other one.
"""

import ctypes
import os
import random
import socket
import struct
import threading
import time

CLONE_NEWNET = 0x40000000
BED_NODES = 4  # the two of the job, and the proxy's namespaces before them
HARMLESS = ("delay", "dribble")
CUTS = ("truncate", "reset", "swallow")
CHANGES = ("flip", "lose", "repeat")  # only protected connections notice
DRIBBLED_BYTES = 2000

libc = ctypes.CDLL(None, use_errno=True)


class Proxy:
    """Passes bytes on until it is armed; then the connection that the chosen byte goes through suffers the fault, once."""

    def __init__(self, bed, ports, fault, seed, longest_delay):
        self.random = random.Random(seed)
        self.fault, self.longest_delay = fault, longest_delay
        self.lock = threading.Lock()
        self.passed = 0  # bytes of all connections
        self.at = None  # the byte that is hit
        self.hit = threading.Event()
        self.sockets = []
        # The node that connects, where it meets the proxy, and from where the proxy goes on.
        self.sides = [(bed.address(1), bed.holders[2], bed.holders[3]), (bed.address(0), bed.holders[3], bed.holders[2])]
        self.interpose(bed)
        for side in self.sides:
            for port in ports:
                listener = self.in_namespace(side[1], lambda where=(side[0], port): socket.create_server(where))
                self.sockets.append(listener)
                threading.Thread(target=self.accept, args=(listener, side, port), daemon=True).start()

    @staticmethod
    def interpose(bed):
        for words in (
            ["link", "add", "brp", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"],
            ["link", "set", "brp", "up"],
            ["link", "set", "n1r0", "master", "brp"],
            ["link", "set", "n3r0", "master", "brp"],
        ):
            bed.output(None, ["ip", *words])
        for node, stands_for in ((2, 1), (3, 0)):
            bed.output(node, ["ip", "address", "flush", "dev", "eth0"])
            bed.output(node, ["ip", "address", "add", bed.address(stands_for) + "/24", "dev", "eth0"])

    @staticmethod
    def in_namespace(pid, make):
        """The socket that make() makes, in the network namespace of that process: those of a thread can be changed."""
        made = []

        def enter_and_make():
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                if libc.setns(namespace, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            except OSError as error:
                made.append(error)
            finally:
                os.close(namespace)

        thread = threading.Thread(target=enter_and_make)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]

    def accept(self, listener, side, port):
        address, _, onward = side
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # closed
            try:
                far = self.in_namespace(onward, lambda: socket.create_connection((address, port), timeout=5))
            except OSError:
                self.reset(near)  # nobody listens there
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.sockets.append(end)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def arm(self, most_bytes):
        with self.lock:
            self.at = self.passed + self.random.randrange(most_bytes)

    def find_hit(self, count):
        """The index of the byte to hit among the next `count` bytes, or None."""
        with self.lock:
            index = self.at - self.passed if self.at is not None else count
            self.passed += count
            if index >= count:
                return None
            self.at = None
            return max(index, 0)

    def pump(self, source, target):
        try:
            while data := source.recv(1 << 16):
                index = self.find_hit(len(data))
                if index is None:
                    target.sendall(data)
                elif not self.suffer(source, target, data, index):
                    return
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self.reset(target)
            self.reset(source)

    def suffer(self, source, target, data, index):
        """The fault, at this byte. False: nothing more goes in this direction."""
        before, after = data[:index], data[index:]
        self.hit.set()
        if self.fault in CUTS:
            target.sendall(before)
            if self.fault == "truncate":
                target.shutdown(socket.SHUT_WR)
            if self.fault == "reset":
                self.reset(target)
                self.reset(source)
            while self.fault != "reset" and source.recv(1 << 16):
                pass  # as if it went on
            return False
        if self.fault == "delay":
            with self.lock:  # all connections
                # This wait is the fault.
                time.sleep(self.random.uniform(0, self.longest_delay))
        if self.fault == "dribble":
            for k in range(min(len(after), DRIBBLED_BYTES)):
                target.sendall(before + after[k : k + 1])
                before = b""
            after = after[DRIBBLED_BYTES:]
        if self.fault == "flip":
            after = bytes([after[0] ^ 1 << self.random.randrange(8)]) + after[1:]
        if self.fault == "lose":
            after = after[self.random.randint(1, 64) :]
        if self.fault == "repeat":
            after = after[: self.random.randint(1, 64)] + after
        target.sendall(before + after)
        return True

    @staticmethod
    def reset(end):
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.shutdown(socket.SHUT_RD)  # wakes a thread that reads from it
            end.close()
        except OSError:
            pass

    def close(self):
        for end in self.sockets:
            self.reset(end)
