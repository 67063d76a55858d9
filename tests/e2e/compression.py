"""zstd and XXH3 as snapshots have them, by the C libraries. These are loaded when they are first needed: the emulated
hosts have none. Used by bombs.py and rewriting.py."""
import ctypes
import functools
import struct


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


@functools.cache
def xxhash() -> ctypes.CDLL:
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype, library.XXH3_64bits.restype = Hash128, ctypes.c_uint64
    library.XXH3_128bits.argtypes = library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


@functools.cache
def zstd() -> ctypes.CDLL:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return library


def checksum(data: bytes) -> bytes:
    both = xxhash().XXH3_128bits(data, len(data))
    return struct.pack(">QQ", both.high, both.low)


def checksum64(data: bytes) -> bytes:
    return struct.pack("<Q", xxhash().XXH3_64bits(data, len(data)))


def unpacked(data: bytes, size: int) -> bytes:
    out = ctypes.create_string_buffer(size)
    assert zstd().ZSTD_decompress(out, size, data, len(data)) == size
    return out.raw


def packed(data: bytes) -> bytes:
    bound = zstd().ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(bound)
    size = zstd().ZSTD_compress(out, bound, data, len(data), 3)
    return out.raw[:size]
