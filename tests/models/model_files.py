"""Writes models as Hugging Face folders and GGUF files hold them, in f32."""
import json
import os
import struct


def write_folder(folder, config, weights):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    header, data, offset = {}, [], 0
    for name, array in weights.items():
        data.append(array.astype("<f4").tobytes())
        end = offset + len(data[-1])
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def _string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _entry(key, value):
    kinds = {bool: (7, "<B"), int: (4, "<I"), float: (6, "<f")}
    if isinstance(value, str):
        return _string(key) + struct.pack("<I", 8) + _string(value)
    kind, form = kinds[type(value)]
    return _string(key) + struct.pack("<I", kind) + struct.pack(form, value)


def write_gguf(path, architecture, metadata, weights):
    """Keys of `metadata` stand behind the architecture's name and a dot."""
    align = 32
    entries = [_entry("general.architecture", architecture)]
    entries += [_entry(f"{architecture}.{key}", value) for key, value in metadata.items()]
    tensors, data = b"", b""
    for name, array in weights.items():
        tensors += _string(name) + struct.pack("<I", array.ndim)
        tensors += b"".join(struct.pack("<Q", size) for size in reversed(array.shape))
        tensors += struct.pack("<IQ", 0, len(data))
        data += array.astype("<f4").tobytes()
        data += b"\0" * (-len(data) % align)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(entries)) + b"".join(entries) + tensors
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % align) + data)
