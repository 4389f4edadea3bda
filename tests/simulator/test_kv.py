"""Blocks, their sharing by prefix, and which of them go first."""

from __future__ import annotations

from simulator.kv import BlockPool, chain_hashes


def test_only_full_blocks_are_hashed_and_each_hash_contains_the_ones_before() -> None:
    """Two sequences that differ in the first token only share no block, however equal the rest is."""
    left = chain_hashes([1, 2, 3, 4, 5, 6, 7], 3)
    right = chain_hashes([9, 2, 3, 4, 5, 6, 7], 3)
    assert len(left) == len(right) == 2
    assert not set(left) & set(right)


def test_hashes_continue_from_a_parent() -> None:
    """Hashing in two pieces gives what hashing in one gives."""
    tokens = list(range(12))
    first = chain_hashes(tokens[:8], 4)
    assert first + chain_hashes(tokens[8:], 4, parent=first[-1]) == chain_hashes(tokens, 4)


def test_released_blocks_stay_findable_until_room_is_needed_oldest_end_first() -> None:
    """Of two released sequences of two blocks, the older loses its end first, then its beginning."""
    pool = BlockPool(blocks=4, block_size=2)
    old, new = pool.take(2), pool.take(2)
    for block, key in zip([*old, *new], [101, 102, 201, 202], strict=True):
        pool.remember(block, key)
    assert pool.usage == 1.0
    pool.release(old)
    pool.release(new)
    assert pool.usage == 0.0
    assert pool.find_prefix([101, 102]) == old
    assert pool.take(1) == [old[1]]
    assert pool.find_prefix([101, 102]) == [old[0]]
    assert pool.take(1) == [old[0]]
    assert pool.find_prefix([101, 102]) == []
    assert pool.find_prefix([201, 202]) == new


def test_a_shared_block_is_renewed_and_kept_while_anybody_uses_it() -> None:
    """Sharing takes a released block out of the queue of those to be given away."""
    pool = BlockPool(blocks=3, block_size=2)
    first, second = pool.take(1), pool.take(1)
    pool.remember(first[0], 7)
    pool.remember(second[0], 8)
    pool.release(first)
    pool.release(second)
    assert pool.unused_among(first) == 1
    pool.share(first)
    assert pool.unused_among(first) == 0
    assert pool.free_blocks == 2
    pool.take(2)
    assert pool.find_prefix([8]) == []
    assert pool.find_prefix([7]) == first
    pool.share(first)
    pool.release(first)
    assert pool.free_blocks == 0
    pool.release(first)
    assert pool.free_blocks == 1


def test_with_the_prefix_cache_off_nothing_is_found() -> None:
    """Remembering is then without effect."""
    pool = BlockPool(blocks=2, block_size=2, prefix_cache=False)
    pool.remember(pool.take(1)[0], 5)
    assert pool.find_prefix([5]) == []
