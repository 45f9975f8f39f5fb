"""Hosts an Op through ONNX Runtime's C API: an ``OrtCustomOp`` whose callbacks are Python.

Per session options there is one ``OrtCustomOpDomain`` per domain, and in it one ``OrtCustomOp``
per op and choice of element types. ONNX Runtime makes a `KernelNode` of it for each node.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_void_p
from typing import Any

import numpy as np
import onnx
import onnxruntime

from ..._models import hosting
from ..._models.hosting import Host
from ..._models.model import Model
from ..._ops import registry
from ..._ops.builtin import ONNX_DOMAIN
from ..._ops.op import AnyOp, Op
from ..._schema.signature import Input, Output, Signature, TypeParameter
from ...errors import EngineError
from ..calls import exceptions
from ..calls.timing import Nodes
from .c_api import Api, api_from_table, load
from .compiled_node import dispatch_address, is_compiled
from .cuda_node import CudaNode
from .engine import arm as arm
from .engine import engine
from .hosted_op import HostedOp, hosted_ops
from .session_options import session_options_pointer

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
        addresses = engine.addresses
        if is_compiled(host.op):
            addresses = addresses | {"KernelComputeV2": dispatch_address()}
        items = hosted_ops(host.op, host.name, addresses)
        if "cuda" in host.op.kernels:  # sessions without CUDA pass over these
            items += hosted_ops(host.op, host.name, engine.addresses, "cuda")
        for item in items:
            engine.enter(item)
            api.check(api.CustomOpDomain_Add(self._domain(api, host.domain), item.address))
        return items

    def _domain(self, api: Api, name: str) -> int:
        if name not in self._domains:
            # ONNX's own domain is the empty string inside ONNX Runtime.
            pointer = api.get(c_void_p, api.CreateCustomOpDomain, b"" if name == ONNX_DOMAIN else name.encode())
            api.check(api.AddCustomOpDomain(self._options_pointer, pointer))
            self._domains[name] = pointer
        return self._domains[name]

    def release(self) -> None:
        """Free what the options no longer need; they are gone."""
        api = load()
        for pointer in self._domains.values():
            api.ReleaseCustomOpDomain(pointer)
        for items in self._hosted.values():
            for item in items:
                engine.remove(item)


def _key(host: Host) -> _Key:
    op = host.op
    return host.domain, host.name, id(op), is_compiled(op), "cuda" in op.kernels, op.host_inputs


class SessionHost:
    """What one `pyops.InferenceSession` has from this engine.

    Attributes
    ----------
    model : Model
        As ONNX Runtime can take it; the session lets go of it.
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
        self.nodes: Nodes[int] = Nodes(engine.computes, self._numbers)
        if source.proto is None:  # a model in ORT format, whose nodes nobody reads, nor knows how they were renamed
            hosted = (host for op in registry.latest() for host in hosting.all_hosts(op))
            self._hosts = [host for host in hosted if host.domain not in taken]

    def create(self, function: Callable[[], None]) -> None:
        """Create the session by `function`."""
        with registered(self._options, self._hosts), engine.created_nodes(self._numbers):
            function()

    def raised_by_kernel(self, error: Exception) -> BaseException | None:
        """Return the exception of a kernel that made ONNX Runtime raise `error`."""
        return exceptions.pick_up(str(error))


def take_failed(nodes: Nodes[Any]) -> list[BaseException | None]:
    """Return what the CUDA nodes of a session raised since the last time, as `CudaNode.failed` has it."""
    return [node.failed.pop() for _, node in nodes.living() if isinstance(node, CudaNode) and node.failed]


def registered(options: Any, hosts: Iterable[Host], *, keep: bool = False) -> AbstractContextManager[None]:
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
    ort_api()
    return _showing(options, hosts, keep)


@contextmanager
def _showing(options: Any, hosts: Iterable[Host], keep: bool) -> Iterator[None]:
    arm()
    engine.infer_guard.arm()
    with engine.lock:
        if options not in engine.registrations:
            engine.registrations[options] = Registration(options)
            weakref.finalize(options, engine.registrations[options].release).atexit = False
    with engine.registrations[options].showing(hosts, keep):
        yield


def ort_api() -> Api:
    """The functions of ONNX Runtime itself, for callbacks that it passes none.

    What a shape inference context holds belongs to ONNX Runtime's own copy of protobuf, which the
    second copy of the library must not touch. A kernel is told the table when it is created, and
    where there has been none yet, a session of one node makes one.
    """
    if engine.table is None:
        types = (TypeParameter("tensor(float)", (np.dtype(np.float32),)),)
        op = Op(Signature("pyops", "Probe", 1, (Input("x", *types),), (Output("y", *types),)), lambda x: x)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        with _showing(options, [Host(op.domain, op.name, op)], keep=False):
            model = onnx.parser.parse_model(_PROBE)
            try:
                onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            except Exception as error:  # an interrupt in a callback, say
                interrupt = exceptions.pick_up(str(error))
                raise error if interrupt is None else interrupt from None
    assert engine.table is not None
    return api_from_table(engine.table)


_PROBE = """
<ir_version: 8, opset_import: ["" : 17, "pyops" : 1]>
probe (float[1] x) => (float[1] y) { y = pyops.Probe(x) }
"""
with contextlib.suppress(EngineError):  # where this engine does not work, another one is used
    arm()
