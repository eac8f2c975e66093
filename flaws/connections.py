# SPDX-License-Identifier: Apache-2.0
"""The TCP connections of this machine, by sock_diag(7). /proc/net/tcp also lists those that ended a minute ago: after a
load they are thousands, and each look takes a second."""
import contextlib
import pathlib
import socket
import struct

SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
REQUEST_DUMP, DONE, ERROR = 0x301, 3, 2  # netlink(7)
ESTABLISHED = 1 << 1
HEADER = struct.Struct("=IHHII")
ADDRESSED = struct.Struct("!HH32s12s")  # inet_diag_sockid: both ports, both addresses, interface and cookie
ANSWER = struct.Struct("=4x48x16xI")  # inet_diag_msg: the inode comes last


def inodes(port, other_port):
    """Of the sockets with these ports at their own end and at the other one. 0: any."""
    ask = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, ESTABLISHED) + \
        ADDRESSED.pack(port, other_port, b"", b"")
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
        kernel.send(HEADER.pack(HEADER.size + len(ask), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + ask)
        while True:
            read, at = kernel.recv(1 << 18), 0
            while at < len(read):
                length, kind = HEADER.unpack_from(read, at)[:2]
                if kind == DONE:
                    return found
                if kind == ERROR:
                    raise OSError(-struct.unpack_from("=i", read, at + HEADER.size)[0], "sock_diag")
                found.append(ANSWER.unpack_from(read, at + HEADER.size)[0])
                at += (length + 3) & ~3


def has_socket(pid, inode):
    with contextlib.suppress(OSError):
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(fd.readlink()) == f"socket:[{inode}]":
                    return True
    return False
