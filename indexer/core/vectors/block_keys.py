#!/usr/bin/env python3
"""Computes the test vectors of docs/block-keys.md from its text alone, without the Rust code.

    block_keys.py            prints the vectors as JSON
    block_keys.py --check    compares them with block_keys.json; exit status 1 where they differ
"""
import json
import pathlib
import struct
import sys

MASK = (1 << 64) - 1


def rotate(word, bits):
    return (word << bits | word >> (64 - bits)) & MASK


def siphash_1_3(key, data):
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def step():
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)

    tail = len(data) % 8
    words = [data[at : at + 8] for at in range(0, len(data) - tail, 8)]
    words.append(data[len(data) - tail :].ljust(7, b"\0") + bytes([len(data) & 0xFF]))
    for word in words:
        (m,) = struct.unpack("<Q", word)
        v[3] ^= m
        step()
        v[0] ^= m
    v[2] ^= 0xFF
    for _ in range(3):
        step()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def sized(data):
    return struct.pack("<I", len(data)) + data


def root(key, model, lora, salt):
    data = struct.pack("<I", 0) + sized(model.encode())
    for part in (lora, salt):
        data += b"\0" if part is None else b"\1" + sized(part.encode())
    return siphash_1_3(key, data)


def extra_bytes(extra):
    kind, value = extra["kind"], extra["value"]
    if kind == "media" and extra["offset"] is None:
        return b"\1" + sized(value.encode())
    if kind == "media":
        return b"\2" + sized(value.encode()) + struct.pack("<q", extra["offset"])
    return {"embeddings": b"\3", "unknown": b"\4", "ahead": b"\5"}[kind] + sized(bytes.fromhex(value))


def block(key, parent, tokens, extras):
    data = struct.pack("<IIQ", 1, len(tokens), parent) + struct.pack(f"<{len(tokens)}I", *tokens)
    return siphash_1_3(key, data + b"".join(extra_bytes(extra) for extra in extras))


KEYS = [bytes(range(16)), bytes.fromhex("ffeeddccbbaa99887766554433221100")]
NAMESPACES = [
    ("qwen3", None, None),
    ("qwen3", "my-lora", None),
    ("qwen3", None, "tenant-1"),
    ("qwen3", "my-lora", "tenant-1"),
    ("qwen3", "", ""),
    ("", None, None),
    ("modèle", None, None),
]
EXTRAS = [
    [],
    [{"kind": "media", "value": "image-1", "offset": None}],
    [{"kind": "media", "value": "image-1", "offset": -3}],
    [{"kind": "embeddings", "value": "00ff", "offset": None}, {"kind": "unknown", "value": "c0", "offset": None}],
    [{"kind": "ahead", "value": struct.pack("<I", 7).hex(), "offset": None}],
    [{"kind": "media", "value": "image-1", "offset": 0}, {"kind": "ahead", "value": struct.pack("<3I", 1, 70000, 4294967295).hex(), "offset": None}],
]
CHAINS = [
    [list(range(16)), list(range(16, 32)), [0] * 16, [0] * 16],
    [[1], [2], [3]],
    [[7, 70000, 4294967295]],
    [[]],
    [list(range(784))],
]


def text(number):
    return f"{number:016x}"


def vectors():
    roots, blocks = [], []
    for key in KEYS:
        for model, lora, salt in NAMESPACES:
            found = root(key, model, lora, salt)
            roots.append({"key": key.hex(), "model": model, "lora": lora, "salt": salt, "root": text(found)})
        for extras in EXTRAS:
            for chain in CHAINS:
                parent = root(key, *NAMESPACES[0])
                for tokens in chain:
                    found = block(key, parent, tokens, extras)
                    blocks.append(
                        {"key": key.hex(), "parent": text(parent), "tokens": tokens, "extras": extras, "block": text(found)}
                    )
                    parent = found
    return {"roots": roots, "blocks": blocks}


def main():
    # The reference vector of SipHash-1-3 for the key 00..0f and the empty input.
    assert siphash_1_3(bytes(range(16)), b"") == 0xABAC0158050FC4DC, "SipHash-1-3 itself is wrong"
    found = vectors()
    if sys.argv[1:] == ["--check"]:
        kept = json.loads(pathlib.Path(__file__).with_name("block_keys.json").read_text())
        if kept != found:
            sys.exit("block_keys.json differs from what the specification gives")
        return
    print(json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("},{", "},\n{"))


if __name__ == "__main__":
    main()
