"""The same load across a pair of virtual network interfaces, one end in each of two network namespaces.

On loopback the kernel stamps a segment on the server's core, so the client's load cannot delay the stamp. Here the
receiving half of the network stack is steered onto the client's core, as where a network card's interrupts share it.
Needs root and ``ip`` (package iproute2). Addresses and interfaces exist only inside the two namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.load import Bench, Shape, steady_run
from benchmarks.process import ROOT

SERVER_ADDRESS, CLIENT_ADDRESS = "10.203.17.1", "10.203.17.2"
# Whether the kernel stamps a segment before it is handed to the core it is steered to (1, the default) or there (0).
STAMP_BEFORE_STEERING = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
SECONDS = 6.0


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"ip {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")


@contextmanager
def namespaces(client_core: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Two namespaces joined by a veth pair; yields the prefixes that run a command in the server's and in the client's.

    ``BenchmarkError`` where this machine cannot have them. Both are removed at the end, and the interfaces with them.
    """
    if shutil.which("ip") is None:
        raise BenchmarkError("the ip command (package iproute2) is missing")
    if os.geteuid() != 0:
        raise BenchmarkError("network namespaces need root")
    server, client = f"bench-server-{os.getpid()}", f"bench-client-{os.getpid()}"
    made: list[str] = []
    try:
        for name in (server, client):
            _ip("netns", "add", name)
            made.append(name)
        _ip("-n", server, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", client)
        for name, address in ((server, SERVER_ADDRESS), (client, CLIENT_ADDRESS)):
            _ip("-n", name, "addr", "add", f"{address}/30", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        enter_client = ("ip", "netns", "exec", client)
        steer = f"echo {1 << client_core:x} > /sys/class/net/veth0/queues/rx-0/rps_cpus"
        subprocess.run([*enter_client, "sh", "-c", steer], check=True)
        yield ("ip", "netns", "exec", server), enter_client
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def stamping_after_steering() -> Iterator[None]:
    """The kernel stamps on the client's core for this time; the setting is the whole machine's and is put back."""
    before = STAMP_BEFORE_STEERING.read_text()
    STAMP_BEFORE_STEERING.write_text("0\n")
    try:
        yield
    finally:
        STAMP_BEFORE_STEERING.write_text(before)


def run(bench: Bench, streams: Sequence[int] = (64, 256, 512)) -> list[Row]:
    """Streams of 10 ms in step over the pair, stamped where the client's core receives them."""
    rows = []
    with namespaces(bench.client_core) as (server_prefix, client_prefix), stamping_after_steering():
        for count in streams:
            part = replace(
                bench.part(f"veth-{count}"),
                host=SERVER_ADDRESS,
                server_prefix=server_prefix,
                client_prefix=client_prefix,
            )
            row, _ = steady_run(part, Shape(count, in_step=True), SECONDS)
            rows.append({"streams": count, "in_step": True, **row, "marks": marks(part.run_folder())})
    return rows


def marks(run_folder: Path) -> str:
    """What the table of the run says about reads that carried several tokens; empty when it says nothing."""
    command = [sys.executable, "-m", "analysis", "table", str(run_folder), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        notes = json.loads(done.stdout)["notes"]
    except (ValueError, KeyError):
        raise BenchmarkError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}") from None
    return " ".join(note["text"] for note in notes if note["key"] == "merged reads")
