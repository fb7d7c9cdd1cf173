#!/usr/bin/env python3
"""Writes a small model of random weights in the GGUF format, which llama.cpp loads as it does any other.

What it says is noise, but it says it in full earnest: every token depends on every byte of the KV cache, so output
that is identical shows that the cache is. The weights follow from the seed. Standard library only.
"""

import argparse
import dataclasses
import pathlib
import random
import struct

ALIGNMENT = 32
F32, Q8_0 = 0, 8  # ggml's numbers of tensor types
Q8_0_BLOCK = 32   # weights that share a scale
MOSTLY_Q8_0 = 7   # general.file_type
UINT32, FLOAT32, INT32, STRING, ARRAY, BOOL = 4, 6, 5, 8, 9, 7  # GGUF's numbers of value types
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of token


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 8
    width: int = 1024
    heads: int = 16
    kv_heads: int = 4
    feed_forward: int = 2816
    vocabulary: int = 1024
    context: int = 8192

    @property
    def kv_width(self):
        return self.width // self.heads * self.kv_heads


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if kind == STRING:
        return string(content)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], content)


def entry(key, kind, content):
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def array(key, kind, contents):
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(contents)) +
            b"".join(value(kind, content) for content in contents))


def vocabulary(size):
    """The least that SentencePiece needs: three control tokens, all bytes, the space, and as many words as are left."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [("▁", NORMAL)]
    tokens += [(f"▁w{number}", NORMAL) for number in range(size - len(tokens))]
    return tokens


def metadata(shape):
    tokens = vocabulary(shape.vocabulary)
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "random weights"),
        entry("general.file_type", UINT32, MOSTLY_Q8_0),
        entry("general.quantization_version", UINT32, 2),
        entry("llama.context_length", UINT32, shape.context),
        entry("llama.embedding_length", UINT32, shape.width),
        entry("llama.block_count", UINT32, shape.layers),
        entry("llama.feed_forward_length", UINT32, shape.feed_forward),
        entry("llama.attention.head_count", UINT32, shape.heads),
        entry("llama.attention.head_count_kv", UINT32, shape.kv_heads),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        entry("llama.rope.dimension_count", UINT32, shape.width // shape.heads),
        entry("llama.vocab_size", UINT32, shape.vocabulary),
        entry("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, [text for text, _ in tokens]),
        array("tokenizer.ggml.scores", FLOAT32, [float(-number) for number in range(len(tokens))]),
        array("tokenizer.ggml.token_type", INT32, [kind for _, kind in tokens]),
        entry("tokenizer.ggml.unknown_token_id", UINT32, 0),
        entry("tokenizer.ggml.bos_token_id", UINT32, 1),
        entry("tokenizer.ggml.eos_token_id", UINT32, 2),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
    ]


def tensors(shape):
    """(name, type, dimensions), the length of a row first."""
    found = [("token_embd.weight", Q8_0, (shape.width, shape.vocabulary)),
             ("output_norm.weight", F32, (shape.width,)),
             ("output.weight", Q8_0, (shape.width, shape.vocabulary))]
    for layer in range(shape.layers):
        found += [(f"blk.{layer}.{name}.weight", kind, dimensions) for name, kind, dimensions in (
            ("attn_norm", F32, (shape.width,)),
            ("attn_q", Q8_0, (shape.width, shape.width)),
            ("attn_k", Q8_0, (shape.width, shape.kv_width)),
            ("attn_v", Q8_0, (shape.width, shape.kv_width)),
            ("attn_output", Q8_0, (shape.width, shape.width)),
            ("ffn_norm", F32, (shape.width,)),
            ("ffn_gate", Q8_0, (shape.width, shape.feed_forward)),
            ("ffn_up", Q8_0, (shape.width, shape.feed_forward)),
            ("ffn_down", Q8_0, (shape.feed_forward, shape.width)))]
    return found


def count(dimensions):
    weights = 1
    for dimension in dimensions:
        weights *= dimension
    return weights


def size(kind, dimensions):
    weights = count(dimensions)
    return 4 * weights if kind == F32 else weights // Q8_0_BLOCK * (2 + Q8_0_BLOCK)


def content(kind, dimensions, source):
    """Norms are ones. A matrix is uniform noise that keeps the length of what it is multiplied with."""
    weights = count(dimensions)
    if kind == F32:
        return struct.pack("<f", 1.0) * weights
    blocks = weights // Q8_0_BLOCK
    deviation = 128 / 3 ** 0.5  # of a uniform signed byte
    scale = struct.pack("<e", 1 / (deviation * dimensions[0] ** 0.5))
    data = bytearray(size(kind, dimensions))
    data[0::2 + Q8_0_BLOCK] = scale[0:1] * blocks
    data[1::2 + Q8_0_BLOCK] = scale[1:2] * blocks
    noise = source.randbytes(weights)
    for place in range(Q8_0_BLOCK):
        data[2 + place::2 + Q8_0_BLOCK] = noise[place * blocks:(place + 1) * blocks]
    return data


def pad(length):
    return -length % ALIGNMENT


def write(path, shape, seed):
    entries, found = metadata(shape), tensors(shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(entries)) + b"".join(entries)
    offset = 0
    for name, kind, dimensions in found:
        head += string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)
        length = size(kind, dimensions)
        offset += length + pad(length)
    source = random.Random(seed)
    with open(path, "wb") as file:
        file.write(head + bytes(pad(len(head))))
        for _, kind, dimensions in found:
            data = content(kind, dimensions, source)
            file.write(data)
            file.write(bytes(pad(len(data))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path, help="the file to write")
    parser.add_argument("--seed", type=int, default=1)
    for field in dataclasses.fields(Shape):
        parser.add_argument("--" + field.name.replace("_", "-"), type=int, default=field.default)
    options = vars(parser.parse_args())
    path, seed = options.pop("path"), options.pop("seed")
    write(path, Shape(**options), seed)


if __name__ == "__main__":
    main()
