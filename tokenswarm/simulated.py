"""Starts the simulator, in a process of its own, for scenarios whose target is ``simulator: PRESET``."""

from __future__ import annotations

import atexit
import subprocess
import sys

from tokenswarm.errors import TargetError


class SimulatedTarget:
    """A child process that serves one preset on a free port of the loopback interface."""

    def __init__(self, preset: str, seed: int, *options: str) -> None:
        """Blocks until the simulator listens; raises ``TargetError`` with its last words when it does not."""
        command = [sys.executable, "-m", "simulator", "--preset", preset, "--port", "0", "--seed", str(seed)]
        command += ["--until-stdin-closes", *options]  # however this process ends, the simulator ends with it
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        atexit.register(self.stop)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "http://" not in line:
            _, errors = self._process.communicate(timeout=10)
            last = (errors.strip().splitlines() or ["no output"])[-1]
            raise TargetError(f"the simulator with preset '{preset}' did not start: {last}")
        self.url = line[line.index("http://") :].strip()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
