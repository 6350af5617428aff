"""Damage to the files of a NATS server that is down: what a disk, a loss of power or an operator does to them.

A server stores a stream in `jetstream/<account>/streams/<stream>/msgs`: blocks of messages, and `index.db`, a snapshot of what the blocks
contain. Its replica of the Raft log is in `jetstream/$SYS/_js_/<group>`, with blocks of the same kind, and snapshots of the state
in `snapshots`.
"""

import shutil


def blocks_of(server, stream):
    """The files with the messages of a stream, oldest first."""
    return sorted(server.store.glob(f"jetstream/*/streams/{stream}/msgs/*.blk"), key=lambda path: int(path.stem))


def index_of(server, stream):
    return next(server.store.glob(f"jetstream/*/streams/{stream}/msgs/index.db"), None)


def logs_of(server):
    """The blocks of all Raft logs: of streams, and of the list of streams."""
    return sorted(server.store.glob("jetstream/*/_js_/*/msgs/*.blk"))


def snapshots_of(server):
    """The snapshots of all Raft logs."""
    return sorted(server.store.glob("jetstream/*/_js_/*/snapshots/*"))


def flip_bit(path, place):
    """Flips one bit, at a place from 0 (begin) to 1 (end). Returns whether the file has a byte there."""
    size = path.stat().st_size
    if size == 0:
        return False
    with open(path, "r+b") as file:
        at = min(int(size * place), size - 1)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
    return True


def flip_header_length(path, place):
    """Flips a bit of the length of a message's headers, at the first message behind a place. The server's checksum is that of headers and
    data in one piece, so it does not notice that data and headers are parted elsewhere. Returns whether there is such a message."""
    block = bytearray(path.read_bytes())
    begin = block.find(b"NATS/1.0\r\n", int(len(block) * place))
    if begin < 4:
        return False
    block[begin - 4] ^= 0x10
    path.write_bytes(block)
    return True


def cut(path, place):
    """Cuts the end of a file off, from a place between 0 and 1."""
    with open(path, "r+b") as file:
        file.truncate(int(path.stat().st_size * place))


def copy_of(server, folder):
    """Copies the store of a server as it is now on the disk. The server must not write meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(server.store, folder, symlinks=True)


def restore(server, folder):
    """Puts a copy of the store back: what was written since is lost."""
    shutil.rmtree(server.store)
    shutil.copytree(folder, server.store, symlinks=True)
