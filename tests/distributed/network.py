"""Machines on one desk: network namespaces on a bridge, each with an address of its own.

Needs root and ``ip`` (package iproute2). The addresses are of 198.18.0.0/15, which is set aside for tests of networks
(RFC 2544), and gone with the namespaces.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass
from types import TracebackType

_NUMBERS = itertools.count()


def problem() -> str | None:
    """Why this machine cannot have namespaces; ``None`` where it can."""
    if shutil.which("ip") is None:
        return "network namespaces need ip (iproute2)"
    probe = f"ts{os.getpid()}probe"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces need root: {tried.stderr.strip()}"
    _ip("netns", "del", probe)
    return None


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@dataclass(frozen=True)
class Machine:
    """A namespace; ``enter`` is what stands before a command that runs in it."""

    namespace: str
    address: str
    plug: str  # the end of its cable that is on the bridge

    @property
    def enter(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)


class Network:
    """The bridge and its machines, all removed at the end. ``address`` is where servers of the test listen."""

    def __init__(self) -> None:
        number = next(_NUMBERS)
        self._name = f"ts{os.getpid()}n{number}"  # an interface's name has 15 characters at most
        self._prefix = f"198.{18 + number % 2}.{os.getpid() % 256}"
        self._machines: list[Machine] = []
        self.address = f"{self._prefix}.1"

    def __enter__(self) -> Network:
        _ip("link", "add", self._name, "type", "bridge")
        try:
            _ip("addr", "add", f"{self.address}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in self._machines:
            subprocess.run(["ip", "link", "del", machine.plug], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", machine.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], check=False, capture_output=True)

    def machine(self) -> Machine:
        """One more."""
        number = len(self._machines)
        plug = f"{self._name}p{number}"
        machine = Machine(f"{self._name}m{number}", f"{self._prefix}.{2 + number}", plug)
        _ip("netns", "add", machine.namespace)
        self._machines.append(machine)
        _ip("link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
        _ip("link", "set", plug, "master", self._name, "up")
        _ip("-n", machine.namespace, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        for interface in ("eth0", "lo"):
            _ip("-n", machine.namespace, "link", "set", interface, "up")
        return machine

    def cut(self, machine: Machine) -> None:
        """Nothing reaches the machine any more, and nothing comes from it; it does not notice."""
        _ip("link", "set", machine.plug, "nomaster")

    def heal(self, machine: Machine) -> None:
        _ip("link", "set", machine.plug, "master", self._name)
