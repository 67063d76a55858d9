"""What the daemons of a cluster have in etcd, opened and sealed as src/cluster/seal.cpp does. For tests of entries of other versions."""
import ctypes
import ctypes.util
import hashlib
import json
import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = "kvmserver-record 1"


class Sealed:
    """The entries of a cluster, by their keys without the prefix."""

    def __init__(self, cluster) -> None:
        self.etcd = cluster.etcd
        self.cipher = AESGCM(hashlib.sha256(b"kvmserver cluster 1\n" + cluster.key.read_bytes().strip()).digest())
        self.zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")

    def get(self, key: str) -> str:
        value = self.etcd.get(f"kvmserver/{key}")
        assert value[0] == 1, value
        packed = self.cipher.decrypt(value[1:13], value[13:], key.encode())
        room = ctypes.create_string_buffer(64 << 20)
        self.zstd.ZSTD_decompress.restype = ctypes.c_size_t
        length = self.zstd.ZSTD_decompress(room, ctypes.c_size_t(len(room)), packed, ctypes.c_size_t(len(packed)))
        assert length <= len(room), length
        return room.raw[:length].decode()

    def put(self, key: str, text: str) -> None:
        plain = text.encode()
        room = ctypes.create_string_buffer(len(plain) + 1024)
        self.zstd.ZSTD_compress.restype = ctypes.c_size_t
        length = self.zstd.ZSTD_compress(room, ctypes.c_size_t(len(room)), plain, ctypes.c_size_t(len(plain)), 3)
        assert length <= len(room), length
        nonce = os.urandom(12)
        self.etcd.put(f"kvmserver/{key}", b"\x01" + nonce + self.cipher.encrypt(nonce, room.raw[:length], key.encode()))


def record(text: str) -> dict:
    """What a record holds."""
    head, _, body = text.partition("\n")
    assert head.startswith(MAGIC) and head.split()[3] == hashlib.sha256(body.encode()).hexdigest(), head
    return json.loads(body)


def to_record(kind: str, content: dict) -> str:
    body = json.dumps(content, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return f"{MAGIC} {kind} {hashlib.sha256(body.encode()).hexdigest()}\n{body}"
