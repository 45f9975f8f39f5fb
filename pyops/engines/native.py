"""Hosts an Op through ONNX Runtime's C API: an ``OrtCustomOp`` whose callbacks are Python.

Per session options there is one ``OrtCustomOpDomain`` per domain, and in it one ``OrtCustomOp``
per op and choice of element types. ONNX Runtime makes a `KernelNode` of it for each node.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import addressof, c_void_p
from typing import Any

import numpy as np
import onnxruntime

from .. import failures, hosting, registry
from ..errors import EngineError
from ..hosting import Host
from ..model import Model
from ..op import Op
from ..signature import Input, Output, Signature, TypeParameter
from .c_api import PROTOTYPES, Api, api_from_table, load, session_options_pointer
from .compiled_node import CompiledNode, dispatch_address, is_compiled
from .cuda_node import CudaNode
from .guard import Guard, checkpoint
from .hosted_op import AnyOp, HostedOp, hosted, hosted_ops, immortal, interrupts
from .kernel_node import KernelNode
from .shape_inference import infer_output_shapes
from .timing import Nodes

# A domain, an op type, and of an op what the structures depend on that describe it.
_Key = tuple[str, str, int, bool, bool, tuple[str, ...]]


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
            wanted = {_key(host): host for host in hosts}
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
        for key, items in self._hosted.items():
            for item in items:
                item.activate(key in keys)

    def _add(self, host: Host) -> list[HostedOp]:
        api = load()
        callbacks = _callback_addresses
        if is_compiled(host.op):
            callbacks = callbacks | {"KernelComputeV2": dispatch_address()}
        items = hosted_ops(host.op, host.name, callbacks)
        if "cuda" in host.op.kernels:  # sessions without CUDA pass over these
            items += hosted_ops(host.op, host.name, _callback_addresses, "cuda")
        for item in items:
            hosted[item.address] = item
            _infers[item.address] = functools.partial(_infer_output_shapes, item.op)
            api.check(api.CustomOpDomain_Add(self._domain(api, host.domain), item.address))
        return items

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
        for items in self._hosted.values():
            for item in items:
                del hosted[item.address], _infers[item.address]


def _key(host: Host) -> _Key:
    op = host.op
    return host.domain, host.name, id(op), is_compiled(op), "cuda" in op.kernels, op.host_inputs


class SessionHost:
    """What one `pyops.InferenceSession` has from this engine.

    Attributes
    ----------
    model : Model
        As ONNX Runtime can take it.
    nodes : Nodes
        Those that ops compute, once the session is created.

    Parameters
    ----------
    ops : mapping
        The ops that the model needs, by domain and name.
    taken : set of str
        Domains that another library may register.
    """

    def __init__(self, options: Any, source: Model, ops: Mapping[tuple[str, str], AnyOp], taken: set[str]) -> None:
        hosts = {key: hosting.host(op, taken) for key, op in ops.items()}
        self.model = source.hosted(hosts)
        self._options, self._hosts = options, list(hosts.values())
        self._numbers: list[int] = []
        self.nodes = Nodes(_computes, self._numbers)
        if source.proto is None:  # a model in ORT format, whose nodes nobody reads, nor knows how they were renamed
            hosted = (host for op in registry.latest() for host in hosting.all_hosts(op))
            self._hosts = [host for host in hosted if host.domain not in taken]

    def create(self, function: Callable[[], None]) -> None:
        """Create the session by `function`."""
        # A kernel that runs for a constant may create a session too.
        outer, _this_thread.created = _this_thread.created, self._numbers
        try:
            with registered(self._options, self._hosts):
                function()
        finally:
            _this_thread.created = outer

    def raised_by_kernel(self, error: Exception) -> BaseException | None:
        """The exception of a kernel that made ONNX Runtime raise `error`."""
        return failures.pick_up(str(error))


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
    _infer_guard.arm()
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


# What ONNX Runtime's pointers stand for: shape inference by the address of a hosted op's structure,
# kernel nodes (their `compute`) by a number of ours, or by the address of what compiled code knows of them.
_infers: dict[int, Callable[[int], int | None]] = {}
_computes: dict[int, Callable[[int], int | None]] = {}
_numbers = itertools.count(1)


class _ThisThread(threading.local):
    created: list[int] | None = None
    """The numbers of the nodes of the session that is being created."""


_this_thread = _ThisThread()


def _infer_output_shapes(op: AnyOp, context: int) -> None:
    if op.shape_function is not None:
        infer_output_shapes(api_from_table(_table()), op, context)


def _create_kernel(hosted_op: int, table: int, info: int, out: int) -> int | None:
    try:
        api = api_from_table(table)
        _tables.append(table)
        if interrupts:
            interrupt = interrupts[0]
            interrupts.clear()
            raise interrupt
        op = hosted[hosted_op]
        if op.struct.KernelComputeV2 == _callback_addresses["KernelComputeV2"]:
            made = CudaNode if op.device_type == "cuda" else KernelNode
            number, node = next(_numbers), made(api, info, op)
        else:
            node = CompiledNode(api, info, op, _callback_addresses["KernelComputeV2"])
            number = node.address
        _computes[number] = node.compute
        if _this_thread.created is not None:
            _this_thread.created.append(number)
        c_void_p.from_address(out).value = number
    except BaseException as error:
        return _report(error)
    return None


def _report(error: BaseException, attempts: int = 8) -> int:
    """A status that stands for an exception, though others come in meanwhile."""
    try:
        return _Reporter().report(error)
    except BaseException:
        if not attempts:
            raise
        return _report(error, attempts - 1)


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
_compute_guard: Guard[int, int | None] = Guard(_computes, _Reporter())
_infer_guard: Guard[int, int | None] = Guard(_infers, _Reporter())


_CALLBACKS: dict[str, Any] = {
    # The bound method is C code, so that no interrupt can be raised in this callback either.
    "KernelDestroy": _computes.pop,
    "CreateKernelV2": checkpoint(_create_kernel, interrupts.append),
    "KernelComputeV2": _compute_guard.callback,
    "InferOutputShapeFn": _infer_guard.callback,
}


_callback_addresses = {name: immortal(PROTOTYPES[name](function)) for name, function in _CALLBACKS.items()}
with contextlib.suppress(EngineError):  # where this engine does not work, another one is used
    arm()
