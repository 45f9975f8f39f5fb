"""Hosting of ops in a session through ONNX Runtime's C API, as ``OrtCustomOp`` structures with Python callbacks.

Each session options object has one ``OrtCustomOpDomain`` per domain, and in it one ``OrtCustomOp`` per op and
combination of element types. ONNX Runtime creates a `KernelNode` from it for each node.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import c_size_t, c_void_p
from typing import Any

import numpy as np
import onnx
import onnxruntime

from ...._support.builtin_operators import ONNX_DOMAIN
from ...._support.locks import RLock
from ...._support.system import IS_WINDOWS
from ....errors import EngineError
from ...cuda.cuda_node import CudaNode
from ...models.hosting import Host, all_hosts, host_of
from ...models.model import Model
from ...ops import op_registry
from ...ops.op import AnyOp, Op
from ...satellites import satellite
from ...schema.signature import Input, Output, Signature, TypeParameter
from .. import kernel_exceptions
from ..callback_guard import signals_deferred
from ..profiling import SessionNodes
from .c_api import Api, api_from_table, load
from .callbacks import arm as arm
from .callbacks import engine
from .kernel_node import KernelNode
from .ort_custom_op import HostedOp, choices, show

# Domain, op type, and the properties of an op that its structures depend on.
_Key = tuple[str, str, int, tuple[Any, int], bool, tuple[str, ...]]


POINTER_ENTRY = "pyops.session_options_pointer."
"""The prefix of the configuration entries that confirm pointers to session options."""


class Registration:
    """The domains and hosted ops registered in one SessionOptions object.

    ONNX Runtime keeps pointers to them: they live as long as the options, and a hosted op as long as any kernel created
    from it.
    """

    def __init__(self, options_pointer: int) -> None:
        # Reentrant: a signal's handler may create a session with the same options.
        self._lock = RLock()
        self._options_pointer = options_pointer
        self.domains: dict[str, int] = {}
        self._hosted: dict[_Key, list[HostedOp]] = {}
        self._items: list[HostedOp] = []

    def items(self, hosts: Iterable[Host]) -> list[HostedOp]:
        """Return the hosted ops of these hosts, added to the options if they are new."""
        with self._lock:
            wanted = {_key(host): host for host in hosts}
            for key in wanted.keys() - self._hosted.keys():
                self._hosted[key] = self._add(wanted[key])
            return [item for key in wanted for item in self._hosted[key]]

    def keep(self, hosts: Iterable[Host]) -> None:
        """Make exactly these ops visible to plain onnxruntime sessions that are created from the options."""
        show(self.items(hosts), hidden=self._items)

    def _add(self, host: Host) -> list[HostedOp]:
        api = load()
        kinds: list[tuple[str, Callable[..., Any], int]] = [("cpu", *_node_maker(host.op))]
        if "cuda" in host.op.kernels:  # ignored by sessions without CUDA
            kinds.append(("cuda", CudaNode, 0))
        found = choices(host.op.signature)
        items = [HostedOp(host.op, host.name, choice, engine.addresses, *kind) for kind in kinds for choice in found]
        self._items += items  # before ONNX Runtime has pointers to them, as an exception may come at any instant
        for item in items:
            api.check(api.CustomOpDomain_Add(self._domain(api, host.domain), item.address))
        return items

    def _domain(self, api: Api, name: str) -> int:
        if name not in self.domains:
            # ONNX Runtime's name of ONNX's own domain is the empty string.
            pointer = api.get(c_void_p, api.CreateCustomOpDomain, b"" if name == ONNX_DOMAIN else name.encode())
            api.check(api.AddCustomOpDomain(self._options_pointer, pointer))
            self.domains[name] = pointer
        return self.domains[name]


def _key(host: Host) -> _Key:
    op = host.op
    return host.domain, host.name, id(op), _node_maker(op), "cuda" in op.kernels, op.host_inputs


def _node_maker(op: AnyOp) -> tuple[Callable[..., Any], int]:
    """Return what makes the nodes of an op, and the address of the machine code that computes them; 0 if none does."""
    return satellite("machine").node_maker(op) or (KernelNode, 0)


def session_options_pointer(options: Any) -> int:
    """Return the ``OrtSessionOptions*`` behind a Python ``SessionOptions``.

    The pointer comes from pybind11's protocol for sharing objects between modules, which checks the C++ type. To
    confirm it, a configuration entry is written through Python and read back through C.

    Raises
    ------
    EngineError
        `options` is not an ``onnxruntime.SessionOptions``, or this build does not confirm the pointer.
    """
    api = load()  # first, because it reports an older release, whose bindings differ too
    conduit = isinstance(options, onnxruntime.SessionOptions) and getattr(options, "_pybind11_conduit_v1_", None)
    capsule = conduit and conduit(_platform_abi_id(), _type_info_capsule(), b"raw_pointer_ephemeral")
    if not capsule:
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = c_void_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = c_void_p, [ctypes.py_object, c_void_p]
    pointer: int = get_pointer(capsule, get_name(capsule))
    value = f"{pointer:x}"
    key = POINTER_ENTRY + value
    try:
        options.get_session_config_entry(key)
    except RuntimeError:  # it is not there; ONNX Runtime warns of one that is written again
        options.add_session_config_entry(key, value)
    size, buffer = c_size_t(64), ctypes.create_string_buffer(64)
    api.check(api.GetSessionConfigEntry(pointer, key.encode(), ctypes.addressof(buffer), ctypes.addressof(size)))
    if buffer.value.decode() != value:
        raise EngineError("ONNX Runtime's session options are not where its Python bindings say they are")
    return pointer


@functools.cache
def _platform_abi_id() -> bytes:
    """Return the id of the bindings' C++ ABI: the end of the name of one of pybind11's types."""
    from onnxruntime.capi import onnxruntime_pybind11_state as bindings

    record = type(bindings.get_available_providers.__self__).__name__
    prefix = "pybind11_detail_function_record_v1_"
    if not record.startswith(prefix):
        raise EngineError(f"this build of onnxruntime's bindings ({record}) does not say which C++ ABI it has")
    return record.removeprefix(prefix).encode()


_TYPE_NAME = ctypes.create_string_buffer(b"N11onnxruntime6python16PySessionOptionsE")
# The part of a std::type_info that pybind11 reads: an unused virtual table pointer, and the name.
_TYPE_INFO: ctypes.Array[Any] = (c_void_p * 2)(None, ctypes.addressof(_TYPE_NAME))
_CAPSULE_NAME = ctypes.create_string_buffer(b"St9type_info")
if IS_WINDOWS:  # Microsoft's has the name itself, after a second pointer
    _TYPE_INFO = ctypes.create_string_buffer(bytes(16) + b".?AUPySessionOptions@python@onnxruntime@@")
    _CAPSULE_NAME = ctypes.create_string_buffer(b"class type_info")


@functools.cache
def _type_info_capsule() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_void_p, c_void_p]
    return new(ctypes.addressof(_TYPE_INFO), ctypes.addressof(_CAPSULE_NAME), None)


class _Created:
    """The addresses of a session's nodes. ONNX Runtime frees some, and other nodes may then get their addresses."""

    def __init__(self) -> None:
        self.nodes: list[weakref.ref[KernelNode]] = []

    def __iter__(self) -> Iterator[int]:
        return (node.address for reference in self.nodes if (node := reference()) is not None)


class SessionHost:
    """The native engine's part of one `pyops.InferenceSession`.

    Parameters
    ----------
    ops : mapping
        The ops that the model needs, by domain and name.
    taken : set of str
        Domains that another library may register.

    Attributes
    ----------
    model : Model
        The model to give to ONNX Runtime; the session deletes it afterwards.
    nodes : Nodes
        The nodes that ops compute, once the session is created.
    """

    def __init__(self, options: Any, source: Model, ops: Mapping[tuple[str, str], AnyOp], taken: set[str]) -> None:
        hosts = {key: host_of(op, taken) for key, op in ops.items()}
        self.model = source.hosted(hosts)
        self._options, self._hosts = options, list(hosts.values())
        self._created = _Created()
        self.nodes: SessionNodes[int] = SessionNodes(engine.computes, self._created)
        if source.proto is None:  # ORT format: its nodes, and how they were renamed, are unknown
            hosted = (host for op in op_registry.latest() for host in all_hosts(op))
            self._hosts = [host for host in hosted if host.domain not in taken]

    def create(self, function: Callable[[], None]) -> None:
        """Call `function`, which creates the session, with the ops visible."""
        ort_api()
        engine.create(_registration(self._options).items(self._hosts), self._created.nodes, function)


def take_failed(nodes: SessionNodes[Any]) -> list[BaseException]:
    """Remove and return the `CudaNode.failed` exceptions of a session's CUDA nodes."""
    return [node.failed.pop() for _, node in nodes.living() if isinstance(node, CudaNode) and node.failed]


def register(options: Any, hosts: Iterable[Host]) -> None:
    """Make exactly these ops visible to sessions created from `options` from now on.

    Parameters
    ----------
    options : onnxruntime.SessionOptions
        Other custom-op libraries registered in it stay visible.

    Raises
    ------
    EngineError
        The engine does not work on this machine, or `options` is not a SessionOptions object.
    """
    ort_api()
    _registration(options).keep(hosts)


def _registration(options: Any) -> Registration:
    arm()
    with engine.lock:
        while engine.released:
            for domain in engine.domains.pop(engine.released.pop()).values():
                load().ReleaseCustomOpDomain(domain)
        found = isinstance(options, onnxruntime.SessionOptions) and engine.registrations.get(weakref.ref(options))
        if not found:
            found = Registration(session_options_pointer(options))
            # Only C code runs when the options are freed: what a signal's handler raises in a finalizer is lost.
            engine.registrations[weakref.ref(options, engine.registrations.pop)] = found
            engine.domains[weakref.ref(options, engine.released.append)] = found.domains
        registration: Registration = found
        return registration


def ort_api() -> Api:
    """Return the C API of the ONNX Runtime that the Python bindings use, for callbacks that get none.

    A shape inference context holds objects of that copy's protobuf, which the second copy of the library must not
    touch. ONNX Runtime passes its table when it creates a kernel; if it has not created one yet, a session with one
    node is created for it.
    """
    if engine.table is None:
        types = (TypeParameter("tensor(float)", (np.dtype(np.float32),)),)
        op = Op(Signature("pyops", "Probe", 1, (Input("x", *types),), (Output("y", *types),)), lambda x: x)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = onnx.parser.parse_model(_PROBE).SerializeToString()
        try:
            create = functools.partial(onnxruntime.InferenceSession, model, options, providers=["CPUExecutionProvider"])
            session = engine.create(_registration(options).items([Host(op.domain, op.name, op)]), [], create)
        except Exception as error:  # for example an interrupt in a callback
            interrupt = kernel_exceptions.take(str(error))
            raise error if interrupt is None else interrupt from None
        # The first run sets up pybind11's use of NumPy; a handler that ran a session meanwhile would wait for that.
        with signals_deferred():
            session.run(None, {"x": np.zeros(1, np.float32)})
    assert engine.table is not None
    return api_from_table(engine.table)


_PROBE = """
<ir_version: 8, opset_import: ["" : 17, "pyops" : 1]>
probe (float[1] x) => (float[1] y) { y = pyops.Probe(x) }
"""
with contextlib.suppress(EngineError):  # the extensions engine is used instead
    arm()
