"""A buffer that kvmserver fills with fresh random bytes before every invocation (include/kvmserver/entropy.h has the whole story).

For a random generator of a program's own. random, secrets, uuid, tempfile, ssl and numpy.random need nothing.

    from entropy import Region

    region = Region(32)
    generator = MyGenerator(region.bytes())
    ...
    if region.is_new():  # another invocation
        generator.seed(region.bytes())

This file is in the public domain (CC0).
"""
import ctypes
import os
import struct

# The mark, each byte xor 0x5a. It must not stand in memory as it is, or what lies behind it would be filled: freed memory counts, too.
_DISGUISED = bytes.fromhex("afd2827a9b775567f983a0bdb94dae9ad790cfc4ee128557d77005ffd4436c5a")


class Region:
    """`size` bytes, 1 to 1,048,576, that are random at first and new in every invocation. Outside of kvmserver they stay as they are."""

    def __init__(self, size: int) -> None:
        if not 1 <= size <= 1 << 20:
            raise ValueError("1 to 1,048,576 bytes")
        head = _DISGUISED + struct.pack("<II", size, 0)
        self._size, self._offset = size, len(head)
        self._memory = (ctypes.c_uint64 * ((len(head) + size + 7) // 8))()  # aligned, and never moved
        place = (ctypes.c_uint8 * len(head)).from_buffer(self._memory)
        for i, byte in enumerate(head):
            place[i] = byte ^ (0x5A if i < len(_DISGUISED) else 0)
        ctypes.memmove(ctypes.byref(self._memory, self._offset), os.urandom(size), size)
        self._seen = self.bytes()

    def __del__(self) -> None:
        if hasattr(self, "_memory"):
            ctypes.memset(ctypes.byref(self._memory), 0, self._offset)  # what takes its place is not filled

    def bytes(self) -> bytes:
        return ctypes.string_at(ctypes.addressof(self._memory) + self._offset, self._size)

    def is_new(self) -> bool:
        """Whether the bytes have changed since this was last asked."""
        seen, self._seen = self._seen, self.bytes()
        return seen != self._seen
