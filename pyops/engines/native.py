"""Hosts an Op through ONNX Runtime's C API: an ``OrtCustomOp`` whose callbacks are Python.

Per session options there is one ``OrtCustomOpDomain`` per domain, and in it one ``OrtCustomOp``
per op and choice of element types. ONNX Runtime makes a `Kernel` of it for each node.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from ctypes import addressof, c_int, c_void_p
from typing import Any

import numpy as np
import onnxruntime

from .. import failures
from ..errors import EngineError
from ..hosting import Host
from ..op import Op
from ..signature import Input, Output, Signature, TypeParameter
from ..types import DType, dtype_name, element_type
from .c_api import API_VERSION, PROTOTYPES, Api, OrtCustomOp, Pair, api_from_table, load, session_options_pointer
from .guard import Guard, answering, checkpoint
from .kernel_node import KernelNode
from .shape_inference import infer_output_shapes

AnyOp = Op[..., Any]
_Key = tuple[str, str, int]

_REQUIRED, _OPTIONAL, _VARIADIC = 0, 1, 2  # OrtCustomOpInputOutputCharacteristic
_ANY_TYPE = 0  # ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
_LATEST = 2**31 - 1


class HostedOp:
    """An Op with one choice of its type parameters, as ONNX Runtime's C structure.

    Attributes
    ----------
    active : bool
        Whether new sessions see it. ONNX Runtime offers no way to take an operator out of a
        domain; one that is not active goes by a name that no model uses.
    """

    def __init__(self, op: AnyOp, name: str, choice: dict[TypeParameter, DType]) -> None:
        self.op = op
        self.active = True
        self.input_types = [_code(item, choice) for item in op.signature.inputs]
        self.output_types = [_code(item, choice) for item in op.signature.outputs]
        in_place = _in_place_callbacks(op.signature.may_inplace) if op.signature.may_inplace else {}
        self.struct = OrtCustomOp(version=API_VERSION, **_callback_addresses, **in_place)
        self.address = addressof(self.struct)
        self._name = ctypes.create_string_buffer(name.encode())
        self._inactive_name = ctypes.create_string_buffer(f"_inactive_{self.address:x}".encode())

    def infer_output_shapes(self, context: int) -> None:
        """Answer ONNX Runtime's shape inference for one node."""
        if self.op.shape_function is not None:
            infer_output_shapes(api_from_table(_table()), self.op, context)

    @property
    def name_address(self) -> int:
        """Where the name that ONNX Runtime is told lies."""
        return addressof(self._name if self.active else self._inactive_name)


def hosted_ops(op: AnyOp, name: str) -> list[HostedOp]:
    """One `HostedOp` per choice of the type parameters that an output has."""
    # A parameter that no output has needs no choice: ONNX Runtime lets any type in there, and
    # the kernel node checks it when it is made.
    types = dict.fromkeys(item.type for item in op.signature.outputs if item.homogeneous)
    deciding = [parameter for parameter in types if len(parameter.dtypes) > 1]
    supported = [[dtype for dtype in parameter.dtypes if _ort_code(dtype)] for parameter in deciding]
    fixed = [p.dtypes[0] for p in op.signature.type_parameters if len(p.dtypes) == 1]
    if not all(map(_ort_code, fixed)):
        return []
    return [HostedOp(op, name, dict(zip(deciding, choice, strict=True))) for choice in itertools.product(*supported)]


def unsupported_types(signature: Signature) -> list[str]:
    """Names of the declared element types that ONNX Runtime's custom operators lack."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if not _ort_code(dtype)]


def _ort_code(dtype: DType) -> int | None:
    row = element_type(dtype)
    return row.ort if row else None


def _code(item: Input | Output, choice: dict[TypeParameter, DType]) -> int:
    if item.type in choice:
        return _ort_code(choice[item.type]) or _ANY_TYPE
    return (_ort_code(item.type.dtypes[0]) or _ANY_TYPE) if len(item.type.dtypes) == 1 else _ANY_TYPE


class Registration:
    """The domains and hosted ops that one SessionOptions object has from us.

    ONNX Runtime keeps pointers to them: they live as long as the options do, and a hosted op as
    long as a kernel made of it.
    """

    def __init__(self, options: Any) -> None:
        self._lock = threading.RLock()
        self._kept: set[_Key] = set()
        self._options_pointer = session_options_pointer(options)
        self._domains: dict[str, int] = {}
        self._hosted: dict[_Key, list[HostedOp]] = {}

    @contextmanager
    def showing(self, hosts: Iterable[Host], keep: bool) -> Iterator[None]:
        """Within it, new sessions see exactly these ops; afterwards those that are kept."""
        with self._lock:
            wanted = {(host.domain, host.name, id(host.op)): host for host in hosts}
            for key in wanted.keys() - self._hosted.keys():
                self._hosted[key] = self._add(wanted[key])
            if keep:
                self._kept = set(wanted)
            self._activate(wanted.keys())
            try:
                yield
            finally:
                self._activate(self._kept)

    def _activate(self, keys: Collection[_Key]) -> None:
        for key, hosted in self._hosted.items():
            for item in hosted:
                item.active = key in keys

    def _add(self, host: Host) -> list[HostedOp]:
        api = load()
        hosted = hosted_ops(host.op, host.name)
        for item in hosted:
            _hosted[item.address] = item
            _infers[item.address] = item.infer_output_shapes
            api.check(api.CustomOpDomain_Add(self._domain(api, host.domain), item.address))
        return hosted

    def _domain(self, api: Api, name: str) -> int:
        if name not in self._domains:
            pointer = c_void_p()
            # ONNX's own domain is the empty string inside ONNX Runtime.
            c_name = b"" if name == "ai.onnx" else name.encode()
            api.check(api.CreateCustomOpDomain(c_name, addressof(pointer)))
            api.check(api.AddCustomOpDomain(self._options_pointer, pointer.value))
            self._domains[name] = pointer.value or 0
        return self._domains[name]

    def release(self) -> None:
        """Free what the options no longer need; they are gone."""
        api = load()
        for pointer in self._domains.values():
            api.ReleaseCustomOpDomain(pointer)
        for hosted in self._hosted.values():
            for item in hosted:
                del _hosted[item.address], _infers[item.address]


_registrations_lock = threading.Lock()
_registrations: weakref.WeakKeyDictionary[Any, Registration] = weakref.WeakKeyDictionary()


@contextmanager
def registered(options: Any, hosts: Iterable[Host], *, keep: bool = False) -> Iterator[None]:
    """Within it, sessions created from `options` see exactly these ops.

    Parameters
    ----------
    options : onnxruntime.SessionOptions
        Keeps what it has from elsewhere (other custom-op libraries).
    keep : bool
        Sessions created afterwards see them too.

    Raises
    ------
    EngineError
        ONNX Runtime cannot host Python kernels here, or `options` are none.
    """
    arm()
    if not isinstance(options, onnxruntime.SessionOptions):
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    with _registrations_lock:
        registration = _registrations.get(options)
        if registration is None:
            registration = _registrations[options] = Registration(options)
            weakref.finalize(options, registration.release).atexit = False
    with registration.showing(hosts, keep):
        yield


def arm() -> None:
    """Guard this thread's kernel calls against interrupts from now on.

    Raises
    ------
    RecursionError
        So near the recursion limit that a callback could not even be entered.
    """
    _descend()


# As deep as ctypes and a guard go below `session.run` before the guard catches what is raised.
def _descend() -> None:
    _descend_further()


def _descend_further() -> None:
    _descend_to_the_end()


def _descend_to_the_end() -> None:
    _compute_guard.arm()
    _infer_guard.arm()


# What ONNX Runtime's pointers stand for: hosted ops by the address of their structure, kernel
# nodes (their `compute`) by a number of ours.
_hosted: dict[int, HostedOp] = {}
_infers: dict[int, Callable[[int], None]] = {}
_computes: dict[int, Callable[[int], None]] = {}
_numbers = itertools.count(1)


def _create_kernel(hosted_op: int, table: int, info: int, out: int) -> int | None:
    api = api_from_table(table)
    _tables.append(table)
    try:
        if _interrupts:
            raise _interrupts.pop()
        number = next(_numbers)
        _computes[number] = KernelNode(api, info, _hosted[hosted_op]).compute
        c_void_p.from_address(out).value = number
    except BaseException as error:
        return _Reporter().report(error)
    return None


_SPARES = 32


class _Reporter:
    """Statuses whose messages stand for exceptions that `failures` keeps."""

    def report(self, error: BaseException) -> int:
        return load().status(failures.put_down(error))

    def spares(self) -> list[tuple[int, int]]:
        reserved = [failures.reserve() for _ in range(_SPARES)]
        return [(load().status(message), number) for number, message in reserved]

    slots = failures.waiting


def _table() -> int:
    """The ``OrtApi*`` of ONNX Runtime itself, for callbacks that it passes none.

    What a shape inference context holds belongs to ONNX Runtime's own copy of protobuf, which the
    second copy of the library must not touch. A kernel is told the table when it is created, and
    where there has been none yet, a session of one node makes one.
    """
    if not _tables:
        import onnx

        types = (TypeParameter("tensor(float)", (np.dtype(np.float32),)),)
        op = Op(Signature("pyops", "Probe", 1, (Input("x", *types),), (Output("y", *types),)), lambda x: x)
        options = onnxruntime.SessionOptions()
        with registered(options, [Host(op.domain, op.name, op)]):
            model = onnx.parser.parse_model(_PROBE)
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return _tables[0]


_PROBE = """
<ir_version: 8, opset_import: ["" : 17, "pyops" : 1]>
probe (float[1] x) => (float[1] y) { y = pyops.Probe(x) }
"""
_tables: deque[int] = deque(maxlen=1)
_interrupts: list[BaseException] = []
_compute_guard = Guard(_computes, _Reporter())
_infer_guard = Guard(_infers, _Reporter())


def _signature(hosted_op: int) -> Signature:
    return _hosted[hosted_op].op.signature


def _input_characteristic(asked: Pair) -> int:
    item = _signature(asked.first).inputs[asked.second or 0]
    return _VARIADIC if item.variadic else _OPTIONAL if item.optional else _REQUIRED


def _output_characteristic(asked: Pair) -> int:
    # A model need not name the outputs that it does not use.
    return _VARIADIC if _signature(asked.first).outputs[asked.second or 0].variadic else _OPTIONAL


# What ONNX Runtime asks of a hosted op, by its address, or by that and the position of a tensor;
# a position of 0 is None to ctypes.
_ANSWERS: dict[str, Callable[[Any], int | None]] = {
    "GetName": lambda op: _hosted[op].name_address,
    "GetExecutionProviderType": lambda op: None,
    "GetInputType": lambda asked: _hosted[asked.first].input_types[asked.second or 0],
    "GetInputTypeCount": lambda op: len(_hosted[op].input_types),
    "GetOutputType": lambda asked: _hosted[asked.first].output_types[asked.second or 0],
    "GetOutputTypeCount": lambda op: len(_hosted[op].output_types),
    "GetInputCharacteristic": _input_characteristic,
    "GetOutputCharacteristic": _output_characteristic,
    "GetInputMemoryType": lambda asked: 0,
    "GetVariadicInputMinArity": lambda op: 0,
    "GetVariadicInputHomogeneity": lambda op: int(_signature(op).inputs[-1].homogeneous),
    "GetVariadicOutputMinArity": lambda op: 0,
    "GetVariadicOutputHomogeneity": lambda op: int(_signature(op).outputs[-1].homogeneous),
    "GetStartVersion": lambda op: _hosted[op].op.version,
    "GetEndVersion": lambda op: _LATEST,
}
_CALLBACKS: dict[str, Any] = {name: answering(answer, _interrupts.append) for name, answer in _ANSWERS.items()} | {
    # The bound method is C code, so that no interrupt can be raised in this callback either.
    "KernelDestroy": _computes.pop,
    "CreateKernelV2": checkpoint(_create_kernel, _interrupts.append),
    "KernelComputeV2": _compute_guard.callback,
    "InferOutputShapeFn": _infer_guard.callback,
}


@functools.cache
def _in_place_callbacks(pairs: tuple[tuple[int, int], ...]) -> dict[str, int]:
    # ONNX Runtime asks these without saying for which op: one pair of callbacks per answer.
    outputs, inputs = ((c_int * len(pairs))(*column) for column in zip(*pairs, strict=True))

    def get(at_inputs: int, at_outputs: int) -> int:
        c_void_p.from_address(at_inputs).value = addressof(inputs)
        c_void_p.from_address(at_outputs).value = addressof(outputs)
        return len(pairs)

    functions = {"GetMayInplace": get, "ReleaseMayInplace": lambda at_inputs, at_outputs: None}
    return {name: _immortal(PROTOTYPES[name](function)) for name, function in functions.items()}


def _immortal(callback: Any) -> int:
    # ONNX Runtime may call back while the interpreter takes its modules apart: never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return ctypes.cast(callback, c_void_p).value or 0


_callback_addresses = {name: _immortal(PROTOTYPES[name](function)) for name, function in _CALLBACKS.items()}
arm()
