"""Calls by address: a loop that is compiled once, whoever calls it. Knows types and addresses; knows no array.

numba compiles what a function calls into that function once more, and into whatever calls that one. A call by address ends the chain.
An address holds for one process. It is handed over as a number when loops run, and never compiled into one.
"""

from collections.abc import Callable

from numba import types
from numba.core.callconv import RETCODE_USEREXC, Status, excinfo_ptr_t
from numba.core.cgutils import if_unlikely
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from engine.kernels.intrinsics import LONG


def compile_and_get_address(function: Callable, signature: Signature) -> int:
    """The address of the function, compiled for these types or loaded. It is good for as long as the function is kept.

    Raises `TypeError` when it returns something else than `signature` says.
    """
    function.compile(signature.args)
    made = function.overloads[signature.args]
    if made.signature.return_type != signature.return_type:
        raise TypeError(f"{function.__name__} returns {made.signature.return_type}, not {signature.return_type}.")
    return made.library.get_pointer_to_function(made.fndesc.llvm_func_name)


def make_call_by_address(loop_signature: Signature) -> Callable:
    """A function for compiled loops: `call(address, arguments)` calls what `compile_and_get_address` gave for the same types."""

    def build(context, code, signature, arguments):
        status, answer = emit_call_by_address(loop_signature, context, code, arguments)
        with if_unlikely(code, status.is_error):
            context.call_conv.return_status_propagate(code, status)
        return answer

    @intrinsic
    def call(typing, address, *arguments):
        return loop_signature.return_type(types.intp, types.StarArgTuple.from_types(loop_signature.args)), build

    return call


def make_error_returning_call_by_address(loop_signature: Signature) -> Callable:
    """As `make_call_by_address`, for loops that return nothing. The call returns 0, or a number for `raise_returned_error` when the
    loop raised an error.
    """

    def build(context, code, signature, arguments):
        status, _ = emit_call_by_address(loop_signature, context, code, arguments)
        return code.select(status.is_error, code.ptrtoint(status.excinfoptr, LONG), LONG(0))

    @intrinsic
    def call(typing, address, *arguments):
        return types.int64(types.intp, types.StarArgTuple.from_types(loop_signature.args)), build

    return call


@intrinsic
def raise_returned_error(typing, error_address):
    """Raise the error that a call of `make_error_returning_call_by_address` returned, on whichever thread; 0 raises nothing."""

    def build(context, code, signature, arguments):
        error = Status(*[None] * len(Status._fields))._replace(
            code=RETCODE_USEREXC, excinfoptr=code.inttoptr(arguments[0], excinfo_ptr_t)
        )
        with if_unlikely(code, code.icmp_unsigned("!=", arguments[0], LONG(0))):
            context.call_conv.return_status_propagate(code, error)
        return context.get_dummy_value()

    return types.void(types.int64), build


def emit_call_by_address(loop_signature, context, builder, arguments):
    """Code for a call by address: its status, and what the loop returns."""
    convention = context.call_conv
    loop = builder.inttoptr(
        arguments[0], convention.get_function_type(loop_signature.return_type, loop_signature.args).as_pointer()
    )
    handed = [builder.extract_value(arguments[1], number) for number in range(len(loop_signature.args))]
    return convention.call_function(builder, loop, loop_signature.return_type, loop_signature.args, handed)
