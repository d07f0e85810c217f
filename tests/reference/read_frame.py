"""Reads what peers keep and send, by docs/reference/formats/ alone: another implementation, to see that the document suffices.

    read_frame.py frames FOLDER    decodes FOLDER/*.frame (compressed values) to FOLDER/*.values (f32)
    read_frame.py peer FOLDER...   replays every module's chain from the stores of peers that have stopped

`peer` checks on the way: the manifest's hash, journals' checksums, blobs' hashes, the hash and signature of each update,
and that each state is what the average makes of the one before, bit for bit. Prints JSON. Needs numpy, zstandard, blake3,
cryptography (scripts/reference installs them).
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

WIRE_VERSION = 6
CHUNK, GROUP, BLOCK = 1 << 18, 128, 4096
TWELFTHS = (1.0, 1.059463, 1.122462, 1.1892071, 1.259921, 1.3348398)
TWELFTHS += (1.4142135, 1.498307, 1.587401, 1.6817929, 1.7817974, 1.8877486)
CODECS = {0: "fp32", 1: "int8", 2: "int4", 3: "fp16", 4: "int2", 5: "sparse"}


def bfloat16(data):
    """Little-endian bfloat16 as f32."""
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")


class Reader:
    """The encoding of messages and records."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        assert self.at + count <= len(self.data), "cut off"
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, kind):
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def many(self, read):
        return [read() for _ in range(self.number("Q"))]

    def option(self, read):
        return read() if self.number("B") else None

    def rest(self):
        return self.take(len(self.data) - self.at)

    def module(self):
        return f"{self.number('H')}.{self.number('I')}"

    def blob(self):
        return {"hash": self.take(32).hex(), "bytes": self.number("Q")}


# Compressed frames


def frame_values(data):
    """The codec and the values of a compressed frame."""
    assert data[:4] == b"pswf" and struct.unpack("<H", data[4:6]) == (1,)
    codec = CODECS[struct.unpack("<H", data[6:8])[0]]
    count, payload = struct.unpack("<QQ", data[8:24])
    assert data[24:32] == blake3(data[:24] + data[32:]).digest(length=8), "checksum"
    chunks = -(-count // CHUNK)
    lengths = struct.unpack(f"<{chunks}I", data[32 : 32 + 4 * chunks])
    at, values, unpacked = 32 + 4 * chunks, [], 0
    for number, length in enumerate(lengths):
        own = min(CHUNK, count - number * CHUNK)
        chunk = data[at : at + length]
        at += length
        if codec == "sparse":
            values.append(sparse(chunk, own))
            continue
        chunk = zstandard.ZstdDecompressor().decompress(chunk)
        unpacked += len(chunk)
        values.append(dense(codec, chunk, own))
    assert at == len(data) and unpacked == payload
    return codec, np.concatenate(values) if values else np.zeros(0, "<f4")


def dense(codec, chunk, count):
    if codec in ("fp32", "fp16"):
        return np.frombuffer(chunk, {"fp32": "<f4", "fp16": "<f2"}[codec]).astype("<f4")
    groups = -(-count // GROUP)
    width = {"int8": 128, "int4": 64, "int2": 32}[codec]
    levels = np.frombuffer(chunk[: groups * width], "u1").reshape(groups, width)
    scales = bfloat16(chunk[groups * width :]).reshape(groups, 1)
    if codec == "int8":
        values = levels.view("i1").astype("<f4") * scales
    elif codec == "int4":
        low, high = (levels << 4).view("i1") >> 4, levels.view("i1") >> 4
        values = np.concatenate([low, high], axis=1).astype("<f4") * scales
    else:
        table = np.array([0.4528, 1.510, -0.4528, -1.510], "<f4") * scales
        codes = np.concatenate([levels >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
        values = np.take_along_axis(table, codes.astype(int), axis=1)
    return values.reshape(-1)[:count]


def sparse(chunk, count):
    reader = Reader(chunk)
    classes, blocks = reader.number("B"), -(-count // BLOCK)
    width = 3 if classes == 2 else 2
    scales = [reader.take(width) for _ in range(blocks)]
    bases = [bfloat16(scale[:2])[0] for scale in scales]
    if classes == 2:
        twelfths = np.array(TWELFTHS, "<f4")
        ratios = [twelfths[scale[2] % 12] * np.float32(2.0 ** (scale[2] // 12)) for scale in scales]
        sizes = [[base, base * ratio] for base, ratio in zip(bases, ratios)]
    else:
        sevenths = np.arange(1, 8, dtype="<f4") / np.float32(7)
        sizes = [base * sevenths for base in bases]
    values, kept = np.zeros(count, "<f4"), reader.number("I")
    if kept:
        distances = struct.unpack("<{0}H".format(n := reader.number("B")), reader.take(2 * n))
        marks = struct.unpack("<{0}H".format(n := max(2, classes)), reader.take(2 * n))
        plain = int.from_bytes(reader.take(reader.number("I")), "little")
        symbols = range_decoder(np.frombuffer(reader.rest(), "<u4").tolist())
        at = -1
        for _ in range(kept):
            distance, size = symbols(distances), symbols(marks)
            negative, plain = plain & 1, plain >> 1
            if distance >= 2:
                lower = distance // 2 - 1
                distance = ((2 | distance & 1) << lower) + (plain & ((1 << lower) - 1))
                plain >>= lower
            at += 1 + distance
            value = sizes[at // BLOCK][size]
            values[at] = -value if negative else value
        assert plain == 0, "bits are left over"
    return values


def range_decoder(words):
    """Words, highest first, as a function from frequencies (of 4096) to the next symbol."""
    whole = (1 << 64) - 1
    state = {"lower": 0, "range": whole, "next": 2}
    state["point"] = (words[0] if words else 0) << 32 | (words[1] if len(words) > 1 else 0)

    def symbol(frequencies):
        assert sum(frequencies) == 4096
        scale = state["range"] >> 12
        place, found, below = ((state["point"] - state["lower"]) & whole) // scale, 0, 0
        assert place < 4096, "not what a range coder makes"
        while below + frequencies[found] <= place:
            below, found = below + frequencies[found], found + 1
        state["lower"] = state["lower"] + scale * below & whole
        state["range"] = scale * frequencies[found]
        if state["range"] < 1 << 32:
            word = words[state["next"]] if state["next"] < len(words) else 0
            state["next"] += 1
            state["lower"], state["range"] = state["lower"] << 32 & whole, state["range"] << 32
            state["point"] = (state["point"] << 32 & whole) | word
        return found

    return symbol


# Messages and records


def framed(data, kind):
    """The body of a frame of this kind."""
    assert data[:4] == b"PSW1" and struct.unpack("<HH", data[4:8]) == (WIRE_VERSION, kind)
    return Reader(data[8:])


def contributions(reader):
    """A list of contributions."""
    contribution = lambda: {
        "path": reader.number("I"),
        "parent": reader.number("Q"),
        "steps": reader.number("I"),
        "uncapped": reader.number("I"),
        "weight": reader.number("I"),
        "length": np.frombuffer(struct.pack("<HH", 0, reader.number("H")), "<f4")[0],
        "blob": reader.blob(),
    }
    return reader.many(contribution)


def update(reader, blob):
    """A SignedUpdate, checked by its hash and its owner's key; `blob` reads the list of its contributions."""
    begin = reader.at
    fields = {
        "module": reader.module(),
        "term": reader.number("Q"),
        "owner": reader.take(32).hex(),
        "version": reader.number("Q"),
        "parent": reader.take(32).hex(),
    }
    if reader.data[reader.at : reader.at + 8] == b"\xff" * 8:
        reader.take(8)
        # Of an update that is no longer kept, the list may be gone.
        data = blob(reader.blob())
        fields["contributions"] = contributions(framed(data, 11)) if data else []
        assert not data or len(fields["contributions"]) > 64
    else:
        fields["contributions"] = contributions(reader)
        assert len(fields["contributions"]) <= 64
    fields["norm"] = np.frombuffer(reader.take(4), "<f4")[0]
    lengths = [fields["norm"]] + [one["length"] for one in fields["contributions"]]
    assert all(np.isfinite(length) and length >= 0 for length in lengths)
    fields["average"], fields["state"], fields["weight"] = reader.blob(), reader.blob(), reader.number("Q")
    signed = b"PSW1" + struct.pack("<HH", WIRE_VERSION, 4) + reader.data[begin : reader.at]
    assert reader.number("Q") == 64
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(fields["owner"])).verify(reader.take(64), signed)
    fields["hash"] = blake3(signed).hexdigest()
    return fields


def journal(path):
    """The records of a store, each as its bytes."""
    data = path.read_bytes()
    assert data[:8] == b"pswj\x01\0\0\0" and data[16:32] == blake3(data[:16]).digest(length=16)
    salt, at, records = data[8:16], 32, []
    while at + 16 <= len(data):
        length = struct.unpack("<I", data[at : at + 4])[0]
        body = data[at + 16 : at + 16 + -(-length // 16) * 16]
        checked = salt + struct.pack("<QI", at, length) + body
        assert data[at + 4 : at + 16] == blake3(checked).digest(length=12), "a record's checksum"
        reader = Reader(body[:length])
        while reader.at < length:
            records.append(reader.take(reader.number("I")))
        at += 16 + len(body)
    return records


class Stores:
    """What peers that have stopped hold, together."""

    def __init__(self, folders):
        self.folders = [Path(folder) for folder in folders]
        self.genesis, self.updates = {}, {}
        for folder in self.folders:
            for record in journal(folder / "store/journal"):
                self.take_in(framed(record, 5))

    def take_in(self, reader):
        number = reader.number("I")
        if number == 3:
            module = reader.module()
            self.genesis[module] = reader.blob()
        found = []
        if number in (2, 4):
            found = [update(reader, self.blob)]
        if number == 8:
            found = reader.many(lambda: update(reader, self.blob))
        for one in found:
            self.updates.setdefault(one["module"], {})[one["hash"]] = one

    def blob(self, blob):
        for folder in self.folders:
            path = folder / "store/blobs" / blob["hash"][:2] / blob["hash"]
            if path.exists():
                data = path.read_bytes()
                assert len(data) == blob["bytes"] and blake3(data).hexdigest() == blob["hash"]
                return data
        return None


def state(data, module):
    """Version, parameters and momentum of a module's state."""
    assert data[:6] == b"pswm\x01\0", "a synchronous run's"
    level, expert, version, count = struct.unpack("<HIQQ", data[6:28])
    assert f"{level}.{expert}" == module and len(data) == 28 + 8 * count
    values = np.frombuffer(data[28:], "<f4")
    return version, values[:count], values[count:]


def applied(before, module, average, outer):
    """The encoded state that an average makes of another: Nesterov's rule, each operation rounded to f32."""
    version, parameters, momentum = state(before, module)
    rate, factor = np.float32(outer["learning_rate"]), np.float32(outer["momentum"])
    momentum = factor * momentum + average
    parameters = parameters - rate * (average + factor * momentum)
    head = before[:12] + struct.pack("<Q", version + 1) + before[20:28]
    return head + parameters.astype("<f4").tobytes() + momentum.astype("<f4").tobytes()


def replay(stores, module, genesis, outer):
    """Follows a module's chain from the state at genesis."""
    now, place, told = stores.blob(genesis), "00" * 32, {"version": 0, "checked": 0, "state_hash": genesis["hash"]}
    chain = {one["parent"]: one for one in stores.updates.get(module, {}).values()}
    while place in chain:
        one = chain[place]
        average = stores.blob(one["average"])
        if now is not None and average is not None:
            _, values = frame_values(average)
            now = applied(now, module, values, outer)
            assert blake3(now).hexdigest() == one["state"]["hash"], f"{module}: another state"
            told["checked"] += 1
        else:
            now = stores.blob(one["state"])
        place = one["hash"]
        told["version"], told["state_hash"] = one["version"], one["state"]["hash"]
    return told


def peer(folders):
    stores = Stores(folders)
    above = [folder / "manifest.json" for path in stores.folders for folder in (path, path.parent)]
    manifest = next(path for path in above if path.exists()).read_bytes()
    run = blake3(manifest).hexdigest()
    for folder in stores.folders:
        assert (folder / "store/run").read_text() == run + "\n", "another run"
    manifest = json.loads(manifest)
    assert manifest["config"]["outer"]["mode"] == "synchronous"
    modules = {}
    for module, blob in manifest["genesis"]:
        name = f"{module['level']}.{module['expert']}"
        modules[name] = replay(stores, name, blob, manifest["config"]["outer"])
    return {"run": run, "name": manifest["config"]["name"], "modules": modules}


def frames(folder):
    found = {}
    for path in sorted(Path(folder).glob("*.frame")):
        codec, values = frame_values(path.read_bytes())
        path.with_suffix(".values").write_bytes(values.astype("<f4").tobytes())
        found[path.stem] = {"codec": codec, "count": len(values)}
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("frames", "peer"):
        sys.exit(__doc__)
    print(json.dumps(frames(sys.argv[2]) if sys.argv[1] == "frames" else peer(sys.argv[2:])))
