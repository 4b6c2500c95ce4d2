"""Who is at the other end of a Unix socket, by the kernel's word."""

from __future__ import annotations

import os
import socket
import struct
import sys

from attrs import frozen

_LINUX = struct.Struct("3i")  # struct ucred: pid, uid, gid
_BSD = struct.Struct("IIh16I")  # struct xucred: version, uid, number of groups, groups
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2  # <sys/un.h> of macOS


@frozen
class Peer:
    """The process that connected, as it was then."""

    uid: int
    pid: int
    """0 where the system does not say."""

    @property
    def label(self) -> str:
        """The user and the process, for the log."""
        return f"{_user(self.uid)}, pid {self.pid}" if self.pid else _user(self.uid)


def peer_of(sock: socket.socket) -> Peer:
    """Return who is at the other end. Raises `OSError` where the system does not say."""
    if sys.platform == "darwin":
        data = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _BSD.size)
        pid = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
        return Peer(uid=_BSD.unpack(data.ljust(_BSD.size, b"\0"))[1], pid=pid)

    pid, uid, _ = _LINUX.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _LINUX.size))
    return Peer(uid=uid, pid=pid)


def this_process() -> Peer:
    """Return this process, as a peer."""
    return Peer(uid=os.getuid(), pid=os.getpid())


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
