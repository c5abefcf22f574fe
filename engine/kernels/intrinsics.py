"""Intrinsics: the few inner loops that numba would not compile well by itself, as LLVM code. It names no processor's instructions."""

from collections.abc import Callable, Iterable
from functools import wraps

from llvmlite import binding, ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))  # else there are half as many registers, of half the length
BYTE, WORD, LONG, REAL = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
AHEAD = 16384  # bytes by which weights are asked for before they are needed; half of the smallest first cache
SUMS = 16  # numbers that are added side by side
LINE = 64  # bytes that come to a cache together
vector = ir.VectorType


def ir_constant_or_value(value: ir.Value | int) -> ir.Value:
    return ir.Constant(LONG, value) if isinstance(value, int) else value


class LlvmLoopBuilder(ir.IRBuilder):
    """What writes LLVM code, with words for what loops here are made of. It goes on where numba's own `builder` stands."""

    def __init__(self, builder: ir.IRBuilder):
        self.__dict__ = builder.__dict__

    def address_plus(self, address: ir.Value, *terms: ir.Value | int | tuple[ir.Value, ir.Value | int]) -> ir.Value:
        """The address plus all terms; a pair stands for its product."""
        for term in terms:
            if isinstance(term, tuple):
                left, right = term
                term = self.mul(left, ir_constant_or_value(right))
            address = self.add(address, ir_constant_or_value(term))
        return address

    def load_value(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        return self.load(self.inttoptr(address, kind.as_pointer()), align=1)

    def prefetch(self, address: ir.Value, size: int, cache_level: int) -> None:
        """Ask for `size` bytes from the address on, which will be needed soon, for the first or the second `cache_level`."""
        byte = BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), (byte, WORD, WORD, WORD))
        prefetch = self.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        hints = [
            ir.Constant(WORD, hint) for hint in (0, 4 - cache_level, 1)
        ]  # read, keep in this cache and all behind it, data
        for line in range(0, size, LINE):
            self.call(prefetch, [self.inttoptr(self.address_plus(address, line), byte), *hints])

    def broadcast_to_lanes(self, value: ir.Value, lanes: int) -> ir.Value:
        """The value in every lane."""
        empty = ir.Constant(vector(value.type, lanes), ir.Undefined)
        zeros = ir.Constant(vector(WORD, lanes), [0] * lanes)
        return self.shuffle_vector(self.insert_element(empty, value, ir.Constant(WORD, 0)), empty, zeros)

    def accumulate_in_loop(
        self, kind: ir.Type, vector_count: int, count: ir.Value, body: Callable, starts: list[ir.Value] | None = None
    ) -> list[ir.Value]:
        """The totals of a loop that adds up `vector_count` vectors, from zero or from their `starts`.

        `body(index, totals)` gives the next ones, once at least. It may hold a loop of its own.
        """
        before, loop, after = self.block, self.append_basic_block(), self.append_basic_block()
        self.branch(loop)
        self.position_at_end(loop)
        index, totals = self.phi(LONG), [self.phi(kind) for _ in range(vector_count)]
        added = body(index, totals)
        following, last = self.add(index, ir_constant_or_value(1)), self.block
        starts = [ir.Constant(kind, [0] * kind.count)] * vector_count if starts is None else starts
        for value, first, then in (
            (index, ir_constant_or_value(0), following),
            *zip(totals, starts, added, strict=True),
        ):
            value.add_incoming(first, before)
            value.add_incoming(then, last)
        self.cbranch(self.icmp_signed("<", following, count), loop, after)
        self.position_at_end(after)
        return added

    def hide_value_from_optimiser(self, value: ir.Value) -> ir.Value:
        """The same number, of which the compiler knows nothing. It then unrolls no loop that runs so often: a processor fetches memory
        ahead for an instruction that comes back.
        """
        return self.asm(ir.FunctionType(value.type, (value.type,)), "", "=r,0", [value], False)

    def store_value(self, value: ir.Value, address: ir.Value) -> None:
        self.store(value, self.inttoptr(address, value.type.as_pointer()), align=1)

    def switch_over_cases(self, number: ir.Value, cases: Iterable[int], emit_case: Callable[[int], object]) -> None:
        """Write every one of some cases, by `write(case)`. The one runs that is the `number`."""
        after = self.append_basic_block()
        chosen = self.switch(number, after)
        for case in cases:
            block = self.append_basic_block()
            chosen.add_case(ir_constant_or_value(case), block)
            self.position_at_end(block)
            emit_case(case)
            self.branch(after)
        self.position_at_end(after)

    def emit_multiply_add(self, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`total + a * b` in float32, rounded once where the processor can."""
        return self.fadd(total, self.fmul(a, b, flags=("contract",)), flags=("contract",))


def intrinsic_decorator_for(call_type: Signature, literal_argument_count: int = 0) -> Callable:
    """Makes an intrinsic of this type: `write(code, *arguments)` writes its code and returns its value, if it has any.

    So many arguments more come first, numbers that are known when the code is written.
    """

    def made_of(write: Callable) -> Callable:
        @wraps(write)  # numba reads the arguments' names there, of all but the first
        def typed(typing, *arguments):
            known = arguments[:literal_argument_count]

            def build(context, code, signature, handed):
                value = write(
                    LlvmLoopBuilder(code), *(each.literal_value for each in known), *handed[literal_argument_count:]
                )
                return context.get_dummy_value() if value is None else value

            return call_type.return_type(*known, *call_type.args), build

        return intrinsic(prefer_literal=bool(literal_argument_count))(typed)

    return made_of


def void_signature_of_addresses(count: int) -> Signature:
    """The type of an intrinsic that takes so many addresses, distances and numbers, and returns nothing."""
    return types.void(*[types.intp] * count)


@intrinsic_decorator_for(void_signature_of_addresses(7))
def write_weighted_sums(builder, rows, weights, row_stride, term_stride, vectors, terms, out):
    """Write weighted sums of the rows of `vectors [terms, 8]` to the address `out`, float32 `[rows, 8]`, for one row or eight.

    The weights are float32 from the address `weights` on. They lie `row_stride` bytes apart from row to row and `term_stride` bytes
    from term to term.
    """
    wide = vector(REAL, 8)

    def write(rows: int) -> None:
        def body(term, totals):
            those = builder.load_value(builder.address_plus(vectors, (term, 32)), wide)
            each = [
                builder.load_value(builder.address_plus(weights, (row_stride, row), (term, term_stride)), REAL)
                for row in range(rows)
            ]
            return [
                builder.emit_multiply_add(total, builder.broadcast_to_lanes(one, 8), those)
                for total, one in zip(totals, each, strict=True)
            ]

        for number, value in enumerate(builder.accumulate_in_loop(wide, rows, terms, body)):
            builder.store_value(value, builder.address_plus(out, 32 * number))

    builder.switch_over_cases(rows, (1, 8), write)


def sum_lanes_by_halving(builder: LlvmLoopBuilder, total: ir.Value) -> ir.Value:
    """The sum of a vector's lanes: its halves are added until one number is left."""
    while (half := total.type.count // 2) > 1:
        parts = [ir.Constant(vector(WORD, half), list(range(first, first + half))) for first in (0, half)]
        total = builder.fadd(*(builder.shuffle_vector(total, total, lanes) for lanes in parts))
    return builder.fadd(*(builder.extract_element(total, ir_constant_or_value(lane)) for lane in (0, 1)))


@intrinsic_decorator_for(types.float32(types.intp, types.intp))
def sum_of_chunks(builder, numbers, chunks):
    """The sum of `SUMS * chunks` float32 from the address `numbers` on, for one chunk at least."""
    wide = vector(REAL, SUMS)

    def body(chunk, totals):
        return [builder.fadd(totals[0], builder.load_value(builder.address_plus(numbers, (chunk, 4 * SUMS)), wide))]

    return sum_lanes_by_halving(builder, *builder.accumulate_in_loop(wide, 1, chunks, body))


@intrinsic_decorator_for(types.float32(types.intp, types.intp, types.intp))
def dot_of_chunks(builder, left, right, chunks):
    """The sum of products of `SUMS * chunks` float32 at two addresses, for one chunk at least."""
    wide = vector(REAL, SUMS)

    def body(chunk, totals):
        both = (builder.load_value(builder.address_plus(numbers, (chunk, 4 * SUMS)), wide) for numbers in (left, right))
        return [builder.emit_multiply_add(totals[0], *both)]

    return sum_lanes_by_halving(builder, *builder.accumulate_in_loop(wide, 1, chunks, body))


@intrinsic_decorator_for(types.float32(types.float32, types.float32, types.float32))
def fma(builder, a, b, c):
    """a * b + c in float32, rounded once, wherever it stands and whatever the compiler makes of the loop around it."""
    return builder.fma(a, b, c)


@intrinsic_decorator_for(types.float32(types.float32, types.float32))
def larger_float(builder, a, b):
    """The larger of two float32, in a form that compilers can vectorise; they cannot vectorise `max`."""
    flags = ("nnan", "nsz")
    return builder.select(builder.fcmp_ordered(">", a, b, flags=flags), a, b, flags=flags)


@intrinsic_decorator_for(types.float32(types.int32))
def float_from_bits(builder, bits):
    """The float32 that these 32 bits encode."""
    return builder.bitcast(bits, REAL)


@intrinsic_decorator_for(types.int32(types.float32))
def bits_of_float(builder, number):
    """The 32 bits that encode a float32."""
    return builder.bitcast(number, WORD)


@intrinsic_decorator_for(types.float64(types.int64))
def double_from_bits(builder, bits):
    """The float64 that these 64 bits encode."""
    return builder.bitcast(bits, ir.DoubleType())


@intrinsic_decorator_for(types.voidptr(types.int64))
def pointer_from_address(builder, address):
    """The address as a pointer, for `numba.carray`."""
    return builder.inttoptr(address, BYTE.as_pointer())
