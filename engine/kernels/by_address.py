"""Calls by address: a loop that is compiled once, whoever calls it. Knows types and addresses; knows no array.

numba compiles what a function calls into that function once more, and into whatever calls that one. A call by address ends the chain.
An address holds for one process. It is handed over as a number when loops run, and never compiled into one.
"""

from collections.abc import Callable

from numba import types
from numba.core.cgutils import if_unlikely
from numba.core.typing.templates import Signature
from numba.extending import intrinsic


def address_of(function: Callable, kind: Signature) -> int:
    """The address of the compiled function for arguments of these types. It is compiled here, or its compiled code is loaded.

    The address is good for as long as the function is kept. Raises `TypeError` when it returns something else than `kind` says.
    """
    function.compile(kind.args)
    made = function.overloads[kind.args]
    if made.signature.return_type != kind.return_type:
        raise TypeError(f"{function.__name__} returns {made.signature.return_type}, not {kind.return_type}.")
    return made.library.get_pointer_to_function(made.fndesc.llvm_func_name)


def calling(kind: Signature) -> Callable:
    """A function for compiled loops: `call(address, arguments)` calls what `address_of` gave for the same types."""

    def build(context, code, signature, arguments):
        convention = context.call_conv
        loop = code.inttoptr(arguments[0], convention.get_function_type(kind.return_type, kind.args).as_pointer())
        handed = [code.extract_value(arguments[1], number) for number in range(len(kind.args))]
        status, answer = convention.call_function(code, loop, kind.return_type, kind.args, handed)
        with if_unlikely(code, status.is_error):
            convention.return_status_propagate(code, status)
        return answer

    @intrinsic
    def call(typing, address, *arguments):
        return kind.return_type(types.intp, types.StarArgTuple.from_types(kind.args)), build

    return call
