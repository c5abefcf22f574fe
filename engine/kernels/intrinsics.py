"""Intrinsics: the few inner loops that numba would not compile well by itself, written as LLVM code. Knows addresses and lanes.

Nothing here names an instruction of any one processor; the compiler chooses them.
"""

import platform
from collections.abc import Callable

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))  # else there are half as many registers, of half the length
BYTE, WORD, LONG, REAL = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
AHEAD = 16384  # bytes by which weights are asked for before they are needed; half of the smallest first cache
LINE = 64  # bytes that come to a cache together


def vector(kind: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType(kind, lanes)


def constant(value: int) -> ir.Value:
    return ir.Constant(LONG, value)


def place(code: ir.IRBuilder, address: ir.Value, *terms: ir.Value | tuple[ir.Value, ir.Value | int]) -> ir.Value:
    """The address plus all terms; a pair stands for its product."""
    for term in terms:
        if isinstance(term, tuple):
            left, right = term
            term = code.mul(left, right if isinstance(right, ir.Value) else constant(right))
        address = code.add(address, term)
    return address


def loaded(code: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return code.load(code.inttoptr(address, kind.as_pointer()), align=1)


def ask_for(code: ir.IRBuilder, address: ir.Value, size: int, cache: int) -> None:
    """Code that asks for `size` bytes from the address on, which will be needed soon, for the first or the second `cache`."""
    byte = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), (byte, WORD, WORD, WORD))
    prefetch = code.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    hints = [ir.Constant(WORD, hint) for hint in (0, 4 - cache, 1)]  # read, keep in this cache and all behind it, data
    for line in range(0, size, LINE):
        code.call(prefetch, [code.inttoptr(place(code, address, constant(line)), byte), *hints])


def spread(code: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The value in every lane."""
    empty = ir.Constant(vector(value.type, lanes), ir.Undefined)
    zeros = ir.Constant(vector(WORD, lanes), [0] * lanes)
    return code.shuffle_vector(code.insert_element(empty, value, ir.Constant(WORD, 0)), empty, zeros)


def added_up(code: ir.IRBuilder, kind: ir.Type, sums: int, count: ir.Value, body: Callable) -> list[ir.Value]:
    """Code for a loop that adds up `sums` vectors, and their totals behind it.

    The totals start at zero. `body(index, totals)` gives the next ones; it runs `count` times, but at least once.
    """
    before, loop, after = code.block, code.append_basic_block(), code.append_basic_block()
    code.branch(loop)
    code.position_at_end(loop)
    index, totals = code.phi(LONG), [code.phi(kind) for _ in range(sums)]
    added = body(index, totals)
    following = code.add(index, constant(1))
    zero = ir.Constant(kind, [0] * kind.count)
    for value, first, then in ((index, constant(0), following), *zip(totals, [zero] * sums, added, strict=True)):
        value.add_incoming(first, before)
        value.add_incoming(then, loop)
    code.cbranch(code.icmp_signed("<", following, count), loop, after)
    code.position_at_end(after)
    return added


def put_down(code: ir.IRBuilder, value: ir.Value, address: ir.Value) -> None:
    """Code that stores the value at the address."""
    code.store(value, code.inttoptr(address, value.type.as_pointer()), align=1)


def summed(
    code: ir.IRBuilder, kind: ir.Type, sums: int, count: ir.Value, body: Callable, out: ir.Value, size: int
) -> None:
    """Code for `added_up`, which stores the totals, of `size` bytes, one behind the other from address `out` on."""
    for number, value in enumerate(added_up(code, kind, sums, count, body)):
        put_down(code, value, place(code, out, constant(number * size)))


def multiplied_and_added(code: ir.IRBuilder, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """`total + a * b` in float32, rounded once where the processor can."""
    return code.fadd(total, code.fmul(a, b, flags=("contract",)), flags=("contract",))


def summing(rows: int) -> Callable:
    """An intrinsic that writes int32 sums of products `[rows, 32]` to the address `sums`.

    It multiplies int16 inputs, whose rows lie `stride` bytes apart, by int8 weights `[pairs, 32, 2]`. The weights stand in pairs
    because processors multiply and add two neighbours in one instruction.
    """
    words, wide = vector(WORD, 32), vector(WORD, 16)
    evens, odds = (ir.Constant(wide, list(range(first, 32, 2))) for first in (0, 1))

    def build(context, code, signature, arguments):
        weights, inputs, stride, pairs, sums = arguments

        def body(pair, totals):
            halves = [
                code.sext(loaded(code, place(code, weights, (pair, 64), constant(half)), vector(BYTE, 32)), words)
                for half in (0, 32)
            ]
            added = []
            for row in range(rows):
                two = loaded(code, place(code, inputs, (stride, row), (pair, 4)), WORD)
                both = code.sext(code.bitcast(spread(code, two, 16), vector(ir.IntType(16), 32)), words)
                for half in halves:
                    products = code.mul(half, both)
                    left, right = (code.shuffle_vector(products, products, lanes) for lanes in (evens, odds))
                    added.append(code.add(totals[len(added)], code.add(left, right)))
            return added

        summed(code, wide, 2 * rows, pairs, body, sums, 64)
        return context.get_dummy_value()

    @intrinsic
    def sums_of(typing, weights, inputs, stride, pairs, sums):
        return types.void(*[types.intp] * 5), build

    return sums_of


def blending(rows: int, lanes: int = 8) -> Callable:
    """An intrinsic that writes weighted sums of the rows of `vectors [terms, lanes]` to the address `sums`, float32 `[rows, lanes]`.

    The weights are float32 from the address `numbers` on. They lie `across` bytes apart from row to row and `along` bytes from term
    to term.
    """
    wide = vector(REAL, lanes)

    def build(context, code, signature, arguments):
        numbers, across, along, vectors, terms, sums = arguments

        def body(term, totals):
            those = loaded(code, place(code, vectors, (term, 4 * lanes)), wide)
            each = [loaded(code, place(code, numbers, (across, row), (term, along)), REAL) for row in range(rows)]
            return [
                multiplied_and_added(code, total, spread(code, one, lanes), those)
                for total, one in zip(totals, each, strict=True)
            ]

        summed(code, wide, rows, terms, body, sums, 4 * lanes)
        return context.get_dummy_value()

    @intrinsic
    def blend_of(typing, numbers, across, along, vectors, terms, sums):
        return types.void(*[types.intp] * 6), build

    return blend_of


@intrinsic
def ask(typing, address):
    """Ask for the line at the address, which will be needed soon, for the second cache."""

    def build(context, code, signature, arguments):
        ask_for(code, arguments[0], LINE, 2)
        return context.get_dummy_value()

    return types.void(types.intp), build


@intrinsic
def fused(typing, a, b, c):
    """a * b + c in float32, rounded once, wherever it stands and whatever the compiler makes of the loop around it."""

    def build(context, code, signature, arguments):
        return code.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), build


@intrinsic
def larger(typing, a, b):
    """The larger of two float32, in a form that compilers can vectorise; they cannot vectorise `max`."""

    def build(context, code, signature, arguments):
        flags = ("nnan", "nsz")
        return code.select(code.fcmp_ordered(">", *arguments, flags=flags), *arguments, flags=flags)

    return types.float32(types.float32, types.float32), build


@intrinsic
def as_float(typing, bits):
    """The float32 that these 32 bits encode."""

    def build(context, code, signature, arguments):
        return code.bitcast(arguments[0], REAL)

    return types.float32(types.int32), build


@intrinsic
def pointer(typing, address):
    """The address as a pointer, for `numba.carray`."""

    def build(context, code, signature, arguments):
        return code.inttoptr(arguments[0], BYTE.as_pointer())

    return types.voidptr(types.int64), build


@intrinsic
def ticks(typing):
    """The processor's own count of time, in its ticks; 0 on processors other than x86-64, which may not let programs read one."""

    def build(context, code, signature, arguments):
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return constant(0)
        return code.call(code.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(LONG, ())), ())

    return types.int64(), build
