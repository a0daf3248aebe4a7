"""How the engine's inner loops are compiled: numba, to machine code of this processor, without Python's lock.

numba knows numbers and arrays; what the hot loops need besides is here as intrinsics: vectors of `LANES` fp32 numbers
(`load`, `widen`, `spread`, `fuse`, `totals`, `store`), atomic counters, prefetching, yielding. Compiled code is kept in
the user's cache, under a digest of all that is compiled here: only the first start on a machine compiles, and no
function is kept with the old code of another one in it.

Invariant: a vector holds what was put into it and sums in one order, whatever the compiler does with the loop around
it: numbers do not depend on what else is computed, nor on which loop computes them.

Asymmetry: `loop` lets the compiler reorder plain sums; vectors are never reordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from harness_adapters.storage import cache_root

F = TypeVar("F", bound=Callable[..., Any])

LANES = 16 if llvm.get_host_cpu_features().get("avx512vl") else 8
"""Numbers of a vector: a register of AVX-512, or of AVX2. What a machine computes depends on it, to the last bit."""

SOURCES = ("compiled.py", "forward.py", "kernels.py", "layout.py", "products.py", "sampling.py", "team.py")
"""The files with compiled code."""


def _digest() -> str:
    folder = Path(__file__).parent
    content = b"".join((folder / name).read_bytes() for name in SOURCES)
    return hashlib.sha256(str(folder).encode() + content).hexdigest()[:16]


CACHE = cache_root() / "compiled" / _digest()

# numba keeps code by its own file's date alone, and these files call each other.
numba.config.CACHE_DIR = str(CACHE)

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": False, "error_model": "numpy"}
_FLOAT, _WORD, _LONG, _BYTE = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.IntType(8)
_VECTOR, _WORDS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_WORD, LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)


def loop(function: F) -> F:
    """Compile, with sums reordered and multiplications fused into them."""
    return cast(F, numba.njit(fastmath={"reassoc", "contract", "nsz"}, **_OPTIONS)(function))


def strict(function: F) -> F:
    """Compile, with sums in the order they are written; multiplications may be fused into them."""
    return cast(F, numba.njit(fastmath={"contract"}, **_OPTIONS)(function))


class _VectorType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="floats")


_vector = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _intrinsic(result: Any, arguments: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    """A function of `arguments` that compiled code may call; `emit(builder, *values)` writes its instructions."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = emit(builder, *values)
        return context.get_dummy_value() if result is types.void else made

    # numba reads the number of arguments off the function's signature.
    if len(arguments) == 0:
        return intrinsic(lambda typing: (result(), generate))
    if len(arguments) == 1:
        return intrinsic(lambda typing, a: (result(*arguments), generate))
    if len(arguments) == 2:
        return intrinsic(lambda typing, a, b: (result(*arguments), generate))
    if len(arguments) == 3:
        return intrinsic(lambda typing, a, b, c: (result(*arguments), generate))
    return intrinsic(lambda typing, a, b, c, d, e: (result(*arguments), generate))


def _at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _emit_spread(builder: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_WORD, 0))
    nought = ir.Constant(_WORDS, [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), nought)


def _emit_fuse(builder: Any, a: Any, b: Any, c: Any) -> Any:
    name = f"llvm.fma.v{LANES}f32"
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [a, b, c])


def _emit_store(builder: Any, address: Any, vector: Any) -> None:
    builder.store(vector, _at(builder, address, _VECTOR), align=4)


def _emit_widen(builder: Any, address: Any) -> Any:
    halves = builder.load(_at(builder, address, _HALVES), align=2)
    bits = builder.shl(builder.zext(halves, _WORDS), ir.Constant(_WORDS, [16] * LANES))
    return builder.bitcast(bits, _VECTOR)


def _shuffled(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WORD, len(places)), places))


def _pairs(builder: Any, a: Any, b: Any) -> Any:
    """Sums of neighbours: those of `a`, then those of `b`."""
    places = range(0, 2 * a.type.count, 2)
    even, odd = (_shuffled(builder, a, b, [start + place for place in places]) for start in (0, 1))
    return builder.fadd(even, odd)


def _halved(builder: Any, a: Any) -> Any:
    """Sums of the first and the second half of a vector."""
    half = a.type.count // 2
    first, second = (_shuffled(builder, a, a, list(range(start, start + half))) for start in (0, half))
    return builder.fadd(first, second)


def _emit_totals(builder: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    a, b, c, d = (_halved(builder, vector) if LANES == 16 else vector for vector in (a, b, c, d))
    fours = _pairs(builder, _pairs(builder, a, b), _pairs(builder, c, d))
    ends = _shuffled(builder, _pairs(builder, fours, fours), fours, [0, 1, 2, 3])
    builder.store(ends, _at(builder, address, ends.type), align=4)


def _emit_prefetch(builder: Any, address: Any) -> None:
    pointer = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _WORD, _WORD, _WORD])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    read, keep, data = (ir.Constant(_WORD, value) for value in (0, 3, 1))
    builder.call(function, [_at(builder, address, _BYTE), read, keep, data])


def _emit_give_way(builder: Any) -> None:
    kind = ir.FunctionType(_WORD, [])
    function = builder.module.globals.get("sched_yield") or ir.Function(builder.module, kind, "sched_yield")
    builder.call(function, [])


_pointer = types.CPointer(types.float32)

floats_at = _intrinsic(_pointer, (types.int64,), lambda b, address: _at(b, address, _FLOAT))
"""A pointer to the fp32 numbers at an address; `numba.carray` makes an array of it."""

load = _intrinsic(_vector, (types.int64,), lambda b, address: b.load(_at(b, address, _VECTOR), align=4))
"""The numbers at an address."""

widen = _intrinsic(_vector, (types.int64,), _emit_widen)
"""The bf16 numbers at an address, as many as a vector has lanes: each is the upper half of its fp32 number."""

spread = _intrinsic(_vector, (types.float32,), _emit_spread)
"""One number in all lanes."""

fuse = _intrinsic(_vector, (_vector, _vector, _vector), _emit_fuse)
"""`a * b + c`, rounded once."""

store = _intrinsic(types.void, (types.int64, _vector), _emit_store)
"""Write a vector to an address."""

totals = _intrinsic(types.void, (types.int64, *(_vector,) * 4), _emit_totals)
"""Write the sums of four vectors to an address, each summed in one order of its lanes."""

prefetch = _intrinsic(types.void, (types.int64,), _emit_prefetch)
"""Ask for the cache line at an address that will be read soon."""

add_at = _intrinsic(
    types.int64,
    (types.int64, types.int64),
    lambda b, address, value: b.atomic_rmw("add", _at(b, address, _LONG), value, "seq_cst"),
)
"""Add to the int64 at an address, atomically; what it was before."""

read_at = _intrinsic(types.int64, (types.int64,), lambda b, a: b.load_atomic(_at(b, a, _LONG), "seq_cst", 8))
"""The int64 at an address, read atomically."""

give_way = _intrinsic(types.void, (), _emit_give_way)
"""Let another thread have this core (`sched_yield`)."""

as_float = _intrinsic(types.float32, (types.int32,), lambda b, bits: b.bitcast(bits, _FLOAT))
"""The fp32 number with these 32 bits."""
