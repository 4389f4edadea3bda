"""The pictures that the sessions of one process are about, ordered ahead of their use."""

from __future__ import annotations

from collections.abc import Iterable

from tokenswarm.casting import Casting
from tokenswarm.image_store import ImageStore, Served
from tokenswarm.schedule import Ticket


class Gallery:
    """Between the tickets of a process and its store of pictures."""

    def __init__(self, casting: Casting) -> None:
        """Starts the process that makes the pictures. Raises ``InputError`` where it cannot."""
        self._casting = casting
        self._store = ImageStore([source.images for source in casting.image_sources])
        try:
            self._store.wait_ready()
        except BaseException:  # nobody would close it
            self._store.close()
            raise

    def expect(self, tickets: Iterable[Ticket]) -> None:
        """These tickets will be taken soon."""
        for ticket in tickets:
            wanted = self._casting.wanted_pictures(ticket)
            if wanted is not None:
                self._store.expect(*wanted)

    def take(self, ticket: Ticket) -> Served | None:
        """The pictures of a session; None for a session without. Other greenlets run while they are not ready.

        Raises ``InputError`` where a file is unusable or the process that makes them has ended.
        """
        wanted = self._casting.wanted_pictures(ticket)
        return None if wanted is None else self._store.take(*wanted)

    def forget(self) -> None:
        """Nothing of what is expected will be taken: the level has ended."""
        self._store.forget()

    def close(self) -> None:
        self._store.close()
