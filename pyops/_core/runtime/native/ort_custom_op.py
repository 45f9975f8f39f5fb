"""Ops as ONNX Runtime's C API describes them: an ``OrtCustomOp`` and its query callbacks."""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import PYFUNCTYPE, addressof, c_int, c_size_t, c_void_p, py_object
from functools import partial
from types import SimpleNamespace
from typing import Any

from ...._support.element_types import DType, ort_code
from ...._support.system import IS_WINDOWS
from ...cuda import devices
from ...cuda.cuda_arguments import on_host
from ...ops.op import AnyOp
from ...schema.signature import Input, Output, Signature, TypeParameter
from .c_api import API_VERSION, PROTOTYPES, OrtCustomOp

_REQUIRED, _OPTIONAL, _VARIADIC = 0, 1, 2  # OrtCustomOpInputOutputCharacteristic
_ANY_TYPE = 0  # ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
_LATEST = 2**31 - 1
_CPU_INPUT, _DEFAULT_MEMORY = -2, 0  # OrtMemType


class _Struct(OrtCustomOp):
    """An ``OrtCustomOp`` that knows its `HostedOp`, by address, as ONNX Runtime passes only the structure."""

    _fields_ = (("hosted", c_void_p),)


class HostedOp:
    """An op as an ``OrtCustomOp``, for one assignment of its type parameters and one device type.

    Parameters
    ----------
    callbacks : mapping
        Addresses by field name of ``OrtCustomOp``.
    compute : int
        The address of the machine code that computes nodes; 0 if a callback does.

    Attributes
    ----------
    node_type : type
        What is created for each node: called with the API, the address of an ``OrtKernelInfo`` and this hosted op.
    python : int
        The address of the callback that computes nodes in Python.
    """

    def __init__(
        self,
        op: AnyOp,
        name: str,
        choice: dict[TypeParameter, DType],
        callbacks: Mapping[str, int],
        device_type: str,
        node_type: Callable[..., Any],
        compute: int,
    ) -> None:
        self.op = op
        self.node_type = node_type
        self.python = callbacks["KernelComputeV2"]
        self.device_type = device_type
        self.host_inputs = op.host_inputs if device_type == "cuda" else ()
        signature = op.signature
        answers = _answers(signature, choice, device_type, self.host_inputs)
        in_place = _in_place_callbacks(signature.may_inplace) if signature.may_inplace else {}
        answers |= {"KernelComputeV2": compute or self.python}
        self.struct = _Struct(version=API_VERSION, hosted=id(self), **{**callbacks, **answers, **in_place})
        self.address = addressof(self.struct)
        self.name = ctypes.create_string_buffer(name.encode())
        show((), hidden=[self])  # another one may have had this address

    @staticmethod
    def at(address: int) -> HostedOp:
        """Return the hosted op whose structure is at an address."""
        hosted: HostedOp = ctypes.cast(_Struct.from_address(address).hosted, py_object).value
        return hosted


def choices(signature: Signature) -> list[dict[TypeParameter, DType]]:
    """Return the assignments of dtypes to the type parameters of outputs; none if a required type is not supported."""
    # A type parameter that only inputs use needs no assignment: ONNX Runtime accepts any type there, and the kernel
    # node checks it when it is created.
    if not all(is_supported(p.dtypes[0]) for p in signature.type_parameters if len(p.dtypes) == 1):
        return []
    types = dict.fromkeys(item.type for item in signature.outputs if item.homogeneous and len(item.type.dtypes) > 1)
    supported = (filter(is_supported, parameter.dtypes) for parameter in types)
    return [dict(zip(types, choice, strict=True)) for choice in itertools.product(*supported)]


def is_supported(dtype: DType) -> bool:
    """Return whether ONNX Runtime's custom operators support this element type."""
    return ort_code(dtype) != _ANY_TYPE


def _code(item: Input | Output, choice: dict[TypeParameter, DType]) -> int:
    dtypes = (choice[item.type],) if item.type in choice else item.type.dtypes
    return ort_code(dtypes[0]) if len(dtypes) == 1 else _ANY_TYPE


# Only C code answers ONNX Runtime's queries: a Python function would raise a pending interrupt at its first bytecode,
# and the result, a number, cannot report one. There is one callback per distinct answer.


def _answers(
    signature: Signature, choice: dict[TypeParameter, DType], device_type: str, host_inputs: Sequence[str]
) -> dict[str, int]:
    """Return the addresses of the query callbacks that describe an op, by field name."""
    inputs, outputs = signature.inputs, signature.outputs
    on_cuda = device_type == "cuda"
    constants = {
        "GetInputTypeCount": len(inputs),
        "GetOutputTypeCount": len(outputs),
        "GetExecutionProviderType": addressof(_provider_name(devices.CUDA_PROVIDER)) if on_cuda else None,
        "GetVariadicInputMinArity": 0,
        "GetVariadicInputHomogeneity": int(not inputs or inputs[-1].homogeneous),
        "GetVariadicOutputMinArity": 0,
        "GetVariadicOutputHomogeneity": int(outputs[-1].homogeneous),
        "GetStartVersion": signature.version,
        "GetEndVersion": _LATEST,
    }
    by_position = {
        "GetInputType": tuple(_code(item, choice) for item in inputs),
        "GetOutputType": tuple(_code(item, choice) for item in outputs),
        "GetInputMemoryType": tuple(
            _CPU_INPUT if stays else _DEFAULT_MEMORY for stays in on_host(signature, len(inputs), host_inputs)
        ),
        "GetInputCharacteristic": tuple(
            _VARIADIC if item.variadic else _OPTIONAL if item.optional else _REQUIRED for item in inputs
        ),
        # Optional, because a model may leave out outputs that it does not use.
        "GetOutputCharacteristic": tuple(_VARIADIC if item.variadic else _OPTIONAL for item in outputs),
    }
    callbacks = {name: _constant_callback(PROTOTYPES[name], answer) for name, answer in constants.items()}
    callbacks |= {name: _position_callback(PROTOTYPES[name], answers) for name, answers in by_position.items()}
    return callbacks | {"GetName": _name_callback}


@functools.cache
def _provider_name(provider: str) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(provider.encode())


@functools.cache
def _constant_callback(prototype: Any, answer: int | None) -> int:
    return immortal(prototype(itertools.repeat(answer).__next__))


@functools.cache
def _position_callback(prototype: Any, answers: tuple[int, ...]) -> int:
    return immortal(prototype(answers.__getitem__))


@functools.cache
def _in_place_callbacks(pairs: tuple[tuple[int, int], ...]) -> dict[str, int]:
    # ONNX Runtime does not pass the op to these callbacks, so there is one pair per answer.
    outputs, inputs = (bytes((c_int * len(pairs))(*column)) for column in zip(*pairs, strict=True))
    # Each of the two arguments is the address of a pointer, which its conversion sets; then a function is called that
    # does nothing, and whose result, 1, is mapped to the number of pairs.
    answer: Any = PYFUNCTYPE(c_int)(("Py_IsInitialized", ctypes.pythonapi))
    answer.argtypes = [SimpleNamespace(from_param=partial(_point_at, column)) for column in (inputs, outputs)]
    answer.restype = (0, len(pairs)).__getitem__
    return {
        "GetMayInplace": immortal(PROTOTYPES["GetMayInplace"](answer)),
        "ReleaseMayInplace": _constant_callback(PROTOTYPES["ReleaseMayInplace"], None),
    }


# Makes a pointer, given by its address, point at the content of bytes.
_length = c_size_t()
_point_at: Any = PYFUNCTYPE(c_int, py_object, c_void_p, c_void_p)(
    ("PyBytes_AsStringAndSize", ctypes.pythonapi), ((1,), (1,), (1, "length", addressof(_length)))
)


def immortal(callback: Any) -> int:
    """Return the address of a ctypes callback, and keep it from ever being freed."""
    # ONNX Runtime may call back even while the interpreter shuts down.
    ctypes.pythonapi.Py_IncRef(py_object(callback))
    address = ctypes.cast(callback, c_void_p).value or 0
    takes_structure = any(issubclass(kind, ctypes.Structure) for kind in type(callback)._argtypes_)
    return _by_address(address) if takes_structure and IS_WINDOWS else address


def _by_address(callback: int) -> int:
    """Return the address of code that passes its two arguments on as one structure, by its address, as on Windows."""
    # sub rsp, 56; mov [rsp+32], rcx; mov [rsp+40], rdx; lea rcx, [rsp+32]; mov rax, ...; call rax; add rsp, 56; ret
    code = bytes.fromhex("4883ec38 48894c2420 4889542428 488d4c2420 48b8") + callback.to_bytes(8, "little")
    code += bytes.fromhex("ffd0 4883c438 c3")
    allocate = ctypes.CDLL("kernel32").VirtualAlloc
    allocate.restype, allocate.argtypes = c_void_p, (c_void_p, c_size_t, c_int, c_int)
    address: int = allocate(None, len(code), 0x3000, 0x40)  # MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE
    ctypes.memmove(address, code, len(code))
    return address


# Names that no model uses: the ends of this text, the shortest first, as ONNX Runtime copies them.
_HIDDEN = ctypes.create_string_buffer(b"-" * 2**16)
_ENDS = range(addressof(_HIDDEN) + 2**16 - 1, addressof(_HIDDEN) - 1, -1)


def shown_only(items: Iterable[HostedOp]) -> defaultdict[int, int]:
    """Return the addresses of names by the addresses of hosted ops: of other ops than `items`, names that hide them.

    ONNX Runtime cannot remove an operator from a domain; a hidden one has a name that no model uses.
    """
    return defaultdict(itertools.cycle(_ENDS).__next__, {item.address: addressof(item.name) for item in items})


class _Names(threading.local):
    """The names of ops, as ONNX Runtime is told them in this thread."""

    # In threads that do not create a session of pyops.
    shown = shown_only(())
    __call__ = property(operator.attrgetter("shown.__getitem__"))


names = _Names()
_name_callback = immortal(PROTOTYPES["GetName"](names))


def show_all() -> None:
    """Show all ops that plain onnxruntime sessions see, now that ONNX Runtime knows those of the session in creation.

    The user's code, which is called from now on, may create a plain session.
    """
    names.shown = _Names.shown


def show(items: Iterable[HostedOp], hidden: Iterable[HostedOp] = ()) -> None:
    """Show ops to plain onnxruntime sessions that are created from now on, and hide others."""
    for item in hidden:
        _Names.shown.pop(item.address, None)
    _Names.shown.update(shown_only(items))
