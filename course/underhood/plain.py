"""Plain values: the only thing that passes between a learner's code and whoever judges it.

A plain value is None, a bool, an int, a float, a complex, a string, an `Array`, a `Foreign`, or a list, tuple or dict of
plain values. `plain` makes one of any object without trusting it, `to_json` and `from_json` carry it across a process or
into a file. Nothing is ever pickled.
"""

from __future__ import annotations

import base64
import math
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_ITEMS = 100_000  # in all containers of one value together
MAX_KEYS = 100  # of one dict: numbers can be chosen so that looking one up takes as long as there are keys
MAX_DEPTH = 8
MAX_TEXT = 20_000
MAX_ELEMENTS = 20_000_000  # of one array
SCALARS = frozenset(np.sctypeDict.values())  # these and no subclass, which may have methods of its own
IN_WORDS = 512  # arrays up to this size are written as lists in JSON, for people to read


@dataclass(frozen=True, eq=False)
class Array:
    """A dense array: `kind` is "tensor" (torch) or "array" (numpy), `dtype` its name there, `data` the numbers."""

    kind: str
    dtype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def same_as(self, other: Array) -> bool:
        """Bit for bit, nan equal to nan."""
        return (self.kind, self.dtype, self.shape) == (other.kind, other.dtype, other.shape) and np.array_equal(
            self.data, other.data, equal_nan=self.data.dtype.kind in "fc"
        )


@dataclass(frozen=True)
class Foreign:
    """Anything that is not plain, known by what it is: "a masked array", "a set"."""

    what: str


def in_a_line(text: str, limit: int) -> str:
    """What somebody else wrote, in one line of characters that can be seen: so that it does not look like a verdict."""
    return "".join(c if c.isprintable() else "_" for c in " ".join(text[:limit].split()))


def type_name(obj: Any) -> str:
    """The name of an object's type, whatever the object says of itself."""
    name = type.__getattribute__(type(obj), "__name__")
    return name[:80] if type(name) is str else "object"


def plain(obj: Any) -> Any:
    """Make a plain value of any object. Calls no method that the object could have replaced."""
    return _plain(obj, depth=0, budget=[MAX_ITEMS])


def _plain(obj: Any, depth: int, budget: list[int]) -> Any:
    kind = type(obj)
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        return Foreign("a value nested too deep or too long")
    if obj is None or kind in (bool, float, complex):
        return obj
    if kind is int:
        return obj if obj.bit_length() <= 4096 else Foreign("an integer of more than 4096 bits")
    if kind is str:
        return obj[:MAX_TEXT].encode("utf-8", "replace").decode()
    if kind in (list, tuple):
        return kind(_plain(item, depth + 1, budget) for item in obj)
    if kind is dict:
        if len(obj) > MAX_KEYS:
            return Foreign(f"a dict of {len(obj)} keys")
        if all(type(key) in (str, int, bool, float) for key in obj):
            return {key: _plain(value, depth + 1, budget) for key, value in obj.items()}
        return Foreign("a dict whose keys are no strings or numbers")
    if kind is np.ndarray:
        return _array("array", str(obj.dtype), obj)
    if kind in SCALARS:
        return _plain(obj.item(), depth, budget) if kind is not np.longdouble else Foreign("a long double")
    return _tensor(obj)


def _array(kind: str, dtype: str, data: np.ndarray) -> Array | Foreign:
    if data.dtype.kind not in "biufc" or data.dtype.itemsize > 16:
        return Foreign(f"an array of dtype {dtype[:40]}")
    if data.size > MAX_ELEMENTS:
        return Foreign(f"an array of {data.size} elements")
    return Array(kind, dtype, np.array(data, order="C"))


def _tensor(obj: Any) -> Array | Foreign:
    torch = sys.modules.get("torch")
    if torch is None or type(obj) not in (torch.Tensor, torch.nn.Parameter):
        return Foreign(f"an object of type {type_name(obj)}")
    dtype = str(obj.dtype).removeprefix("torch.")
    if obj.layout is not torch.strided or obj.is_quantized or obj.device.type == "meta":
        return Foreign("a sparse, quantized or meta tensor")
    if obj.numel() > MAX_ELEMENTS:
        return Foreign(f"a tensor of {obj.numel()} elements")
    data = obj.detach().resolve_conj().resolve_neg().cpu()
    if data.dtype in (torch.bfloat16, torch.float16):
        data = data.float()
    try:
        return _array("tensor", dtype, data.numpy())
    except (TypeError, RuntimeError):
        return Foreign(f"a tensor of dtype {dtype}")


def back(value: Any) -> Any:
    """The object again: an `Array` becomes a fresh tensor or array, containers fresh containers."""
    if isinstance(value, Array):
        if value.kind == "array":
            return value.data.copy()
        import torch

        return torch.from_numpy(value.data.copy()).to(getattr(torch, value.dtype))
    if type(value) in (list, tuple):
        return type(value)(back(item) for item in value)
    if type(value) is dict:
        return {key: back(item) for key, item in value.items()}
    return value


def to_json(value: Any) -> Any:
    """JSON of a plain value, or of inputs (which may hold `Build` and `Learner` as well)."""
    from .exercise import Build, Learner

    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [to_json(item) for item in value]
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if type(value) is tuple:
        return {"tuple": [to_json(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if isinstance(value, Foreign):
        return {"foreign": value.what}
    if isinstance(value, Build):
        return {"build": value.name, "with": {key: to_json(_inputs(item)) for key, item in value.arguments.items()}}
    if isinstance(value, Learner):
        return {"learner": value.name}
    if not isinstance(value, Array):
        raise TypeError(f"{value!r} is neither a plain value nor an input")
    written = {value.kind: value.dtype, "shape": list(value.shape), "numbers": value.data.dtype.str}
    if value.data.size <= IN_WORDS and value.data.dtype.kind != "c":
        return written | {"data": value.data.ravel().tolist()}
    return written | {"packed": base64.b64encode(zlib.compress(value.data.tobytes(), 9)).decode()}


def from_json(written: Any) -> Any:
    """What `to_json` wrote. Raises ValueError on anything else."""
    from .exercise import Build, Learner

    if written is None or type(written) in (bool, int, float, str):
        return written
    if type(written) is list:
        return [from_json(item) for item in written]
    match written:
        case {"complex": [real, imag]}:
            return complex(real, imag)
        case {"tuple": list(items)}:
            return tuple(from_json(item) for item in items)
        case {"dict": list(items)} if len(items) <= MAX_KEYS:
            return {_key(key): from_json(item) for key, item in items}
        case {"foreign": str(what)}:
            return Foreign(in_a_line(what, 200))
        case {"build": str(name), "with": dict(arguments)}:
            return Build(name, **{key: from_json(item) for key, item in arguments.items()})
        case {"learner": str(name)}:
            return Learner(name)
        case {"tensor": str(dtype), **rest}:
            return Array("tensor", in_a_line(dtype, 40), _numbers(rest))
        case {"array": str(dtype), **rest}:
            return Array("array", in_a_line(dtype, 40), _numbers(rest))
    raise ValueError("not a plain value")


def _key(written: Any) -> Any:
    """A key of a dict: it may take its time to hash, and to write out."""
    match written:
        case {"tuple": list(items)} if len(items) <= MAX_DEPTH:
            return tuple(_key(item) for item in items)
        case None | bool() | int() | float() | str():
            return written
    raise ValueError("not a plain key")


def _numbers(written: dict) -> np.ndarray:
    shape = tuple(int(n) for n in written["shape"])
    dtype = np.dtype(written["numbers"])
    size = math.prod(shape)
    if dtype.kind not in "biufc" or min(shape, default=0) < 0 or size > MAX_ELEMENTS:
        raise ValueError("not a dense array of numbers")
    if "data" in written:
        return np.array(written["data"], dtype=dtype).reshape(shape)
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(base64.b64decode(written["packed"], validate=True), size * dtype.itemsize + 1)
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()


def _inputs(obj: Any) -> Any:
    """Inputs as plain values, `Build` and `Learner` kept."""
    from .exercise import Build, Learner

    if isinstance(obj, Build | Learner | Array):
        return obj
    if type(obj) in (list, tuple):
        return type(obj)(_inputs(item) for item in obj)
    if type(obj) is dict:
        return {key: _inputs(item) for key, item in obj.items()}
    return plain(obj)


inputs = _inputs
