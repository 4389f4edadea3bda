"""The engine's KV memory: fixed blocks, shared by prefix, the least recently released given away first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence


def salted_root(salt: str | None) -> int:
    """What a sequence's first block continues: 0, or a number of its own for each ``salt``.

    Every later hash contains it, so that sequences of different salts share no block, as in vLLM.
    """
    return int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8]) if salt else 0


def chain_hashes(tokens: Sequence[int], block_size: int, parent: int = 0) -> list[int]:
    """One hash for each *full* block of ``tokens``; a block's hash stands for everything before it as well.

    ``parent`` is the hash of the block before ``tokens[0]``, :func:`salted_root` at the start of a sequence.
    """
    hashes: list[int] = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hash((parent, *tokens[start : start + block_size]))
        hashes.append(parent)
    return hashes


class BlockPool:
    """``blocks`` blocks of ``block_size`` tokens.

    A released block keeps its content, and can be found again by its hash, until somebody needs the room.
    """

    def __init__(self, blocks: int, block_size: int, prefix_cache: bool = True) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))  # first out at the front
        self._users = [0] * blocks
        self._hash_of: list[int | None] = [None] * blocks
        self._block_of: dict[int, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks nobody uses now, whether or not they still hold a known prefix."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        return 1.0 - len(self._free) / self.blocks

    def find_prefix(self, hashes: Sequence[int]) -> list[int]:
        """The blocks that already hold the longest known prefix; nothing is reserved by asking."""
        found: list[int] = []
        if self.prefix_cache:
            for key in hashes:
                block = self._block_of.get(key)
                if block is None:
                    break
                found.append(block)
        return found

    def unused_among(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` are free, so that sharing them takes room as well."""
        return sum(not self._users[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """One more user for each of ``blocks``."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """``count`` empty blocks; the caller has checked ``free_blocks``."""
        taken: list[int] = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            known = self._hash_of[block]
            if known is not None:
                del self._block_of[known]
                self._hash_of[block] = None
            self._users[block] = 1
            taken.append(block)
        return taken

    def remember(self, block: int, key: int) -> None:
        """``block`` is full and can be found under ``key`` from now on; an older block with that key stays the one."""
        if self.prefix_cache and key not in self._block_of:
            self._block_of[key] = block
            self._hash_of[block] = key

    def forget(self) -> bool:
        """Finds nothing of what was computed so far any longer; only possible while no block is in use."""
        if len(self._free) < self.blocks:
            return False
        self._hash_of = [None] * self.blocks
        self._block_of.clear()
        return True

    def release(self, blocks: Sequence[int]) -> None:
        """One user less; the end of a sequence is given away before its beginning."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None
