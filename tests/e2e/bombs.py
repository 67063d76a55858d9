"""Snapshot files that inflate to a thousand times their size, with checksums that are right. Used by test_bombs.py and
bench/bombs.py."""
import hashlib
import struct

from compression import checksum, checksum64, unpacked

HEADER, BLOCK = 128, 128 << 10


def frame(*blocks: tuple[bytes, int]) -> tuple[bytes, int]:
    """A zstd frame (RFC 8878) of blocks: each some bytes once, or one byte so many times. With what it inflates to."""
    out, raw = struct.pack("<IBB", 0xFD2FB528, 0, (22 - 10) << 3), 0
    parts = []
    for data, count in blocks:
        if count == 1:
            parts += [(0, len(data[i:i + BLOCK]), data[i:i + BLOCK]) for i in range(0, len(data), BLOCK)]
        else:
            parts += [(1, min(BLOCK, count - i), data) for i in range(0, count, BLOCK)]
    for i, (kind, size, data) in enumerate(parts):
        out += struct.pack("<I", size << 3 | kind << 1 | (i + 1 == len(parts)))[:3] + data
        raw += size
    return out, raw


class Snapshot:
    """A good one, of which a section is replaced."""

    def __init__(self, data: bytes) -> None:
        self.head = data[:24]
        metadata, self.metadata_raw = struct.unpack_from("<QQ", data, 32)
        index, self.index_raw = struct.unpack_from("<QQ", data, 64)
        self.chunk_bytes, self.chunks = struct.unpack_from("<QI", data, 96)
        at = HEADER + self.chunk_bytes
        self.body = data[HEADER:at]
        self.metadata, self.index = data[at:at + metadata], data[at + metadata:at + metadata + index]

    def file(self, metadata: tuple[bytes, int] | None = None, index: tuple[bytes, int] | None = None) -> bytes:
        metadata, index = metadata or (self.metadata, self.metadata_raw), index or (self.index, self.index_raw)
        length = HEADER + len(self.body) + len(metadata[0]) + len(index[0])
        head = self.head[:16] + struct.pack("<Q", length)
        head += checksum64(head)
        for stored, raw in (metadata, index):
            head += struct.pack("<QQ", len(stored), raw) + checksum(stored)
        head += struct.pack("<QII", self.chunk_bytes, self.chunks, 0)
        return head + checksum(head) + self.body + metadata[0] + index[0]

    def bomb(self, number: int) -> bytes:
        """Each is another one; four kinds."""
        kind, nonce = number % 4, number // 4
        if kind == 0:  # zeros behind a state that says nothing of them
            more, raw = frame((b"\0", (1 << 30) - (1 << 24) - nonce))
            return self.file(metadata=(self.metadata + more, self.metadata_raw + raw))
        if kind == 1:  # 16 MiB of JSON that is all brackets
            return self.file(metadata=frame((struct.pack("<I", (16 << 20) - nonce), 1), (b"[", (16 << 20) - nonce)))
        if kind == 2:  # a list of two million regions, each a list, without its end
            text = b'{"machine": {"regions": [' + b" " * (nonce + 1)
            rows = b'[4096,8192,3,0,""],' * (BLOCK // 19)
            length = struct.pack("<I", len(text) + 120 * len(rows))
            return self.file(metadata=frame((length, 1), (text, 1), (rows * 120, 1)))
        more, raw = frame((b"\0", (255 << 20) - self.index_raw - nonce))  # entries of chunks that are not there
        return self.file(index=(self.index + more, self.index_raw + raw))

    def slow(self) -> bytes:
        """The same snapshot, with 12 MiB of spaces in its JSON: reading that takes some 30 ms."""
        raw = unpacked(self.metadata, self.metadata_raw)
        assert raw[4:5] == b"{"
        spaces = 12 << 20
        length = struct.pack("<I", struct.unpack_from("<I", raw)[0] + spaces)
        return self.file(metadata=frame((length + b"{", 1), (b" ", spaces), (raw[5:], 1)))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
