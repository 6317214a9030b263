"""Packs of neighbouring numbers held in one SIMD register, for the loops that a compiler does not vectorise well.

A pack holds 8 float32 numbers, or 8 float64 numbers if registers are that wide, else 4. Numba keeps local variables of
this type in registers, so a tile of accumulators never goes through memory. For processors with shorter registers the
compiler splits a pack. Every lane is computed separately, so results do not depend on the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils, codegen
from numba.extending import intrinsic, models, register_model

from fedbandit.simulator.kernels.layout import LANES

__all__ = [
    "broadcast",
    "count_at_least",
    "first_at_least",
    "fma",
    "lanes_of",
    "larger",
    "largest",
    "load",
    "over",
    "square_root",
    "store",
    "times",
]

_FEATURES: Final[str] = codegen.get_host_cpu_features()  # type: ignore[no-untyped-call]
BITS: Final = 512 if "+avx512f" in _FEATURES else 256  # the width of a register
_WORD: Final = ir.IntType(32)


class Pack(types.Type):
    """The numba type of a pack of float32 or float64 numbers."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = scalar
        self.lanes = min(LANES, BITS // scalar.bitwidth)
        super().__init__(name=f"Pack({scalar} x {self.lanes})")


@register_model(Pack)
class PackModel(models.PrimitiveModel):
    """A pack is an LLVM vector."""

    def __init__(self, manager: Any, kind: Pack) -> None:
        super().__init__(manager, kind, _vector(kind.scalar, kind.lanes))  # type: ignore[no-untyped-call]


def _instruction(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that maps numba types to a signature and its code callable in compiled code."""
    made: Callable[..., Any] = intrinsic(typed)
    return made


def _vector(scalar: Any, lanes: int) -> Any:
    return ir.VectorType(ir.FloatType() if scalar.bitwidth == 32 else ir.DoubleType(), lanes)


def _address(context: Any, builder: Any, kind: Any, array: Any, indices: Any, vector: Any) -> Any:
    """The address of array[indices], as the address of a vector."""
    view = context.make_array(kind)(context, builder, array)
    item = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
        context, builder, kind, view, indices, wraparound=False
    )
    return builder.bitcast(item, vector.as_pointer())


def _splat(builder: Any, scalar: Any, lanes: int) -> Any:
    nothing = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(nothing, scalar, _WORD(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes))


def _call(builder: Any, name: str, operands: Any) -> Any:
    """An LLVM intrinsic whose operands and result are packs of one type."""
    vector = operands[0].type
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    signature = ir.FunctionType(vector, [vector] * len(operands))
    return builder.call(builder.module.declare_intrinsic(f"{name}.{suffix}", fnty=signature), operands)


@_instruction
def load(_context: Any, array: Any, row: Any, column: Any, like: Any) -> Any:
    """The pack array[row, column], array[row, column + 1] ..., in the precision of the scalar ``like``."""
    pack = Pack(like)

    def emit(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        stored = _vector(array.dtype, pack.lanes)
        value = builder.load(_address(context, builder, array, operands[0], operands[1:3], stored))
        value.align = array.dtype.bitwidth // 8
        return value if array.dtype == like else builder.fpext(value, _vector(like, pack.lanes))

    return pack(array, types.intp, types.intp, like), emit


@_instruction
def store(_context: Any, array: Any, row: Any, column: Any, pack: Any) -> Any:
    """array[row, column], array[row, column + 1] ... = pack."""

    def emit(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        address = _address(context, builder, array, operands[0], operands[1:3], operands[3].type)
        builder.store(operands[3], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, pack), emit


@_instruction
def broadcast(_context: Any, scalar: Any) -> Any:
    """The scalar in every lane."""
    pack = Pack(scalar)

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return _splat(builder, operands[0], pack.lanes)

    return pack(scalar), emit


@_instruction
def fma(_context: Any, factor: Any, other: Any, addend: Any) -> Any:
    """factor * other + addend, rounded once."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return _call(builder, "llvm.fma", operands)

    return factor(factor, other, addend), emit


@_instruction
def times(_context: Any, factor: Any, other: Any) -> Any:
    """factor * other."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.fmul(*operands)

    return factor(factor, other), emit


@_instruction
def over(_context: Any, dividend: Any, divisor: Any) -> Any:
    """dividend / divisor."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.fdiv(*operands)

    return dividend(dividend, divisor), emit


@_instruction
def square_root(_context: Any, pack: Any) -> Any:
    """The square root of every lane."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return _call(builder, "llvm.sqrt", operands)

    return pack(pack), emit


@_instruction
def larger(_context: Any, first: Any, second: Any) -> Any:
    """The larger of two packs, lane by lane; ``second`` where ``first`` is not a number."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *operands), *operands)

    return first(first, second), emit


@_instruction
def largest(_context: Any, pack: Any) -> Any:
    """The largest lane."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        top = builder.extract_element(operands[0], _WORD(0))
        for lane in range(1, pack.lanes):
            value = builder.extract_element(operands[0], _WORD(lane))
            top = builder.select(builder.fcmp_ordered(">", value, top), value, top)
        return top

    return pack.scalar(pack), emit


def _at_least(builder: Any, vector: Any, bound: Any) -> Any:
    """Which lanes are at least the bound, as the bits of an integer."""
    lanes = vector.type.count
    return builder.bitcast(builder.fcmp_ordered(">=", vector, _splat(builder, bound, lanes)), ir.IntType(lanes))


@_instruction
def first_at_least(_context: Any, pack: Any, bound: Any) -> Any:
    """The first lane that is at least the scalar ``bound``, or the number of lanes if none is."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        found = builder.zext(_at_least(builder, *operands), ir.IntType(64))
        beyond = ir.IntType(64)(1 << pack.lanes)
        return builder.cttz(builder.or_(found, beyond), ir.IntType(1)(1))

    return types.int64(pack, bound), emit


@_instruction
def count_at_least(_context: Any, pack: Any, bound: Any) -> Any:
    """How many lanes are at least the scalar ``bound``."""

    def emit(_target: Any, builder: Any, _signature: Any, operands: Any) -> Any:
        return builder.ctpop(builder.zext(_at_least(builder, *operands), ir.IntType(64)))

    return types.int64(pack, bound), emit


@_instruction
def lanes_of(_context: Any, like: Any) -> Any:
    """How many numbers of the scalar's type a pack holds."""

    def emit(context: Any, _builder: Any, _signature: Any, _operands: Any) -> Any:
        return context.get_constant(types.intp, Pack(like).lanes)

    return types.intp(like), emit
