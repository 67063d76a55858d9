"""A snapshot's file with another metadata section (src/snapshot/FORMAT.md), as somebody hostile would make it."""

import json
import pathlib
import struct
from typing import Callable

from compression import checksum, checksum64, packed, unpacked

HEADER = 128


def rewritten(
    snapshot: pathlib.Path, change: Callable[[dict], None], text: Callable[[str], str] = lambda text: text
) -> bytes:
    """`change` gets `machine` of the metadata; `text` then all of it as text, for what is no JSON number."""
    data = snapshot.read_bytes()
    header = bytearray(data[:HEADER])
    stored, size = struct.unpack_from("<QQ", header, 32)
    (chunks,) = struct.unpack_from("<Q", header, 96)
    at = HEADER + chunks
    metadata = unpacked(data[at : at + stored], size)
    (length,) = struct.unpack_from("<I", metadata)
    document = json.loads(metadata[4 : 4 + length])
    change(document["machine"])
    changed = text(json.dumps(document)).encode()
    metadata = struct.pack("<I", len(changed)) + changed + metadata[4 + length :]
    new = packed(metadata)
    struct.pack_into("<Q", header, 16, len(data) - stored + len(new))
    header[24:32] = checksum64(bytes(header[:24]))
    struct.pack_into("<QQ", header, 32, len(new), len(metadata))
    header[48:64] = checksum(new)
    header[112:128] = checksum(bytes(header[:112]))
    return bytes(header) + data[HEADER:at] + new + data[at + stored :]
