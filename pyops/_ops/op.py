"""Op: a Signature with its kernels and its shape function."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, SupportsIndex, TypeVar, cast

from .._compiled import ahead
from .._compiled.kernel import Compile, CompiledKernel, FastMath
from .._compiled.kernel import make as make_kernel
from .._schema import validation
from .._schema.callables import check_parameters
from .._schema.devices import DEVICE_TYPES, DeviceType, check_device_type, cupy, is_cupy
from .._schema.signature import Signature
from .._schema.specs import TensorSpec
from ..errors import DeclarationError, ShapeInferenceError
from . import origin, shape_inference
from .cuda_kernel import CopyingKernel, check_given, check_host_inputs, returning_cupy
from .html import op_page

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Callable[..., TensorSpec | tuple[TensorSpec, ...]])


class Op(Generic[P, R]):
    """An ONNX operator that is a Python function.

    Made by `onnx_op`. Calling it runs the kernel on plain arrays, through the same checks as a
    session: NumPy arrays run the CPU kernel, CuPy arrays the CUDA kernel.

    Attributes
    ----------
    signature : Signature
        What ONNX knows of it. It never changes.
    kernels : dict
        Device type (``"cpu"``, ``"cuda"``) to function. A redeclaration replaces them. There is one for
        the CPU always: where none is registered, it copies to the GPU and back.
    host_inputs : tuple of str
        The inputs that the CUDA kernel takes as NumPy arrays.
    shape_function : callable or None
        As `register_shape_inference` was given it.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("ops::Shift")
    ... def shift(x: NDArray[np.float32], *, by: float = 1.0) -> NDArray[np.float32]:
    ...     return x + np.float32(by)
    >>> shift
    <Op ops::Shift(x: float32, *, by: float = 1.0) -> float32>
    >>> shift(np.zeros(2, np.float32), by=0.5)
    array([0.5, 0.5], dtype=float32)
    """

    __name__: str
    signature: Signature
    kernels: dict[str, Callable[..., Any]]
    host_inputs: tuple[str, ...]
    shape_function: Callable[..., Any] | None

    def __init__(
        self,
        signature: Signature,
        function: Callable[P, R],
        device_types: Sequence[str] = ("cpu",),
        host_inputs: Sequence[str] = (),
    ) -> None:
        self.signature = signature
        # Compiled code, which runs without the interpreter, reads it to see whether it is outdated.
        self._revision = ctypes.c_int64()
        kernels: dict[str, Callable[..., Any]] = dict.fromkeys(device_types, function)
        if "cpu" not in kernels:
            kernels["cpu"] = CopyingKernel(signature, function, host_inputs)
        functools.update_wrapper(self, kernels["cpu"], updated=())
        self.kernels = kernels
        self.host_inputs = tuple(host_inputs)
        self.shape_function = None

    @property
    def domain(self) -> str:
        """The operator's domain: ``mylibrary``."""
        return self.signature.domain

    @property
    def name(self) -> str:
        """The op type: ``AddRound``."""
        return self.signature.name

    @property
    def version(self) -> int:
        """The opset version of the domain from which on this operator is meant."""
        return self.signature.version

    def __call__(self, *inputs: P.args, **attributes: P.kwargs) -> R:
        """Run the kernel on arrays, without a session.

        Parameters
        ----------
        *inputs : numpy.ndarray or cupy.ndarray
            As declared; an absent optional input is None. Kernels get read-only views.
        **attributes
            As declared.

        Raises
        ------
        InputError
            The arguments do not match the declaration.
        OutputError
            The kernel's result does not.
        ShapeInferenceError
            The shape function, which it is held against, does not return what is declared.
        CompileError
            The kernel is to be compiled, and cannot be for these arguments.
        DeclarationError
            The arrays are CuPy's, and the op has no kernel for ``"cuda"``.
        MissingDependencyError
            The kernel needs CuPy, which is not installed.
        """
        arrays, named = validation.split_arguments(self.signature, inputs, attributes)
        device_type = "cuda" if any(map(is_cupy, arrays)) else "cpu"
        outputs = compute(self, arrays, named, device_type)
        return cast("R", outputs if self.signature.returns_tuple else outputs[0])

    def register_kernel(
        self,
        device_type: DeviceType,
        *,
        host_inputs: Sequence[str] = (),
        compile: Compile = False,
        parallel: str | None = None,
        fastmath: FastMath = False,
    ) -> Callable[[F], F]:
        """Decorator: the kernel for another device type, or another one for the CPU.

        ``"cuda"`` takes and returns CuPy arrays. The function takes what the declared one takes, `out` included.

        Parameters
        ----------
        host_inputs : sequence of str
            As for `onnx_op`, of a CUDA kernel.
        compile, parallel, fastmath
            As for `onnx_op`, of a CPU kernel; the declared function is its plain kernel, unless that is a
            CUDA kernel alone.

        Raises
        ------
        DeclarationError
            The device type is unknown, a host input is none, or the function's parameters differ from
            the declared.
        MissingDependencyError
            It is to be compiled, and numba is not installed.

        Examples
        --------
        >>> import numpy as np, pyops
        >>> from numpy.typing import NDArray
        >>> @pyops.onnx_op("kernels::Root")
        ... def root(x: NDArray[np.float32]) -> NDArray[np.float32]:
        ...     return np.sqrt(x)
        >>> @root.register_kernel("cuda")
        ... def _(x):
        ...     import cupy
        ...     return cupy.sqrt(x)
        >>> list(root.kernels)
        ['cpu', 'cuda']
        """
        check_device_type(device_type, f"{self.signature.qualified_name}: register_kernel")
        if device_type != "cpu" and (compile or parallel or fastmath):
            raise DeclarationError(f"{self.signature.qualified_name}: compile, parallel and fastmath are for the CPU")
        named = check_host_inputs(self.signature, host_inputs, (device_type,))

        def register(function: F) -> F:
            check_parameters(function, self.signature, self.signature.takes_out)
            declared = self.kernels["cpu"]
            copying = isinstance(declared, CopyingKernel)
            plain = function if copying else declared.plain if isinstance(declared, CompiledKernel) else declared
            self.kernels[device_type] = make_kernel(self.signature, function, plain, compile, parallel, fastmath)
            if device_type == "cuda":
                self.host_inputs = named
                if copying:
                    self.kernels["cpu"] = CopyingKernel(self.signature, function, named)
            self._revision.value += 1
            return function

        return register

    def register_shape_inference(self, function: S) -> S:
        """Decorator: how output shapes follow from input shapes.

        The function takes `pyops.shapes.TensorSpec` objects in place of arrays (None for an absent
        input) and the attributes, and returns a spec, or a tuple of them for several outputs.

        Raises
        ------
        DeclarationError
            The function's parameters differ from the declared.

        Examples
        --------
        >>> import numpy as np, pyops
        >>> from numpy.typing import NDArray
        >>> @pyops.onnx_op("shapes::Flat")
        ... def flat(x: NDArray[np.float32]) -> NDArray[np.float32]:
        ...     return x.reshape(len(x), -1)
        >>> @flat.register_shape_inference
        ... def _(x):
        ...     n, *rest = x.shape
        ...     return x.like(shape=(n, np.prod(rest, dtype=int)))
        >>> print(*flat.infer_shapes(pyops.shapes.TensorSpec((2, 3, 4), np.float32)))
        float32[2, 12]
        """
        check_parameters(function, self.signature, takes_out=False)
        self.shape_function = function
        self._revision.value += 1
        return function

    def compile(self, *inputs: Any, **attributes: Any) -> None:
        """Compile the CPU kernel now, rather than when it is called first.

        Parameters
        ----------
        *inputs : numpy.ndarray
            Examples, whose dtypes and ranks it is compiled for. Without any it is compiled for every
            dtype that is declared, at the lowest rank from 1 to 4, and then 0, that it can be compiled for.
        **attributes
            As for a call.

        Raises
        ------
        DeclarationError
            The kernel is not declared with ``compile=``.
        CompileError
            It cannot be compiled; the message has numba's reason and line.
        InputError
            The examples do not match the declaration.
        """
        shapes = None if self.shape_function is None else functools.partial(output_shapes, self)
        ahead.compile_kernel(self.signature, self.kernels["cpu"], shapes, inputs, attributes)

    def infer_shapes(self, *specs: TensorSpec | None, **attributes: Any) -> tuple[TensorSpec, ...]:
        """Run the shape function.

        Parameters
        ----------
        *specs : TensorSpec or None
            One per input.

        Returns
        -------
        tuple of TensorSpec
            One per output.

        Raises
        ------
        ShapeInferenceError
            There is no shape function, or it returned something other than declared.
        InputError
            The specs or attributes do not match the declaration.
        """
        if self.shape_function is None:
            raise ShapeInferenceError(
                f"{self.signature.qualified_name} has no shape function; register one with "
                f"@{self.__name__}.register_shape_inference"
            )
        return shape_inference.infer(self.signature, self.shape_function, specs, attributes)

    @property
    def device_types(self) -> tuple[str, ...]:
        """The device types that have a kernel of their own."""
        own = {name for name, validation in self.kernels.items() if not isinstance(validation, CopyingKernel)}
        return tuple(name for name in DEVICE_TYPES if name in own)

    @property
    def location(self) -> str:
        """Where what runs on the CPU stands: ``file:line``."""
        return origin.location(self.kernels["cpu"])

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # By its name, as a function, where it is found there; but by value from a notebook, as cloudpickle does.
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__name__, None) is self:
            return self.__name__
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        version = "" if self.version == 1 else f", version {self.version}"
        return f"<Op {self.signature}{version}>"

    def _repr_html_(self) -> str:
        return op_page(self.signature, self.kernels["cpu"], self.device_types, self.shape_function is not None)


AnyOp = Op[..., Any]


def compute(
    op: AnyOp, arrays: Sequence[Any], attributes: Mapping[str, Any], device_type: str = "cpu"
) -> tuple[Any, ...]:
    """Run an op's kernel and hold its outputs against the declaration and the shape function.

    Parameters
    ----------
    arrays : sequence
        One per input, None where absent.
    attributes : mapping
        As `Signature.convert_attributes` returns them.

    Returns
    -------
    tuple of arrays
        One per output.
    """
    function = kernel_of(op, device_type)
    if device_type == "cuda":
        check_given(op.signature, arrays, op.host_inputs)
        function = returning_cupy(op.signature, function)
    outputs = validation.call(op.signature, function, arrays, attributes)
    if op.shape_function is not None:
        validation.check_shapes(op.signature, output_shapes(op, arrays, attributes), outputs, arrays)
    return outputs


def kernel_of(op: AnyOp, device_type: str) -> Callable[..., Any]:
    """An op's kernel for a device type.

    Raises
    ------
    MissingDependencyError
        A CUDA kernel is wanted and CuPy is not installed.
    DeclarationError
        No such kernel is registered.
    """
    if device_type not in op.kernels:
        raise DeclarationError(
            f"{op.signature.qualified_name} has no kernel for {device_type!r}; register one with "
            f'@{op.__name__}.register_kernel("{device_type}")'
        )
    if device_type == "cuda":
        cupy(f"the CUDA kernel of {op.signature.qualified_name}")
    return op.kernels[device_type]


def output_shapes(
    op: AnyOp, arrays: Sequence[Any], attributes: Mapping[str, Any]
) -> tuple[tuple[int | None, ...], ...]:
    """The shapes that an op's shape function gives for actual inputs; None for a run-time dimension.

    Parameters
    ----------
    arrays : sequence of array or None
        One per input.

    Raises
    ------
    ShapeInferenceError
        As `Op.infer_shapes`.
    """
    specs = [None if array is None else TensorSpec(array.shape, array.dtype) for array in arrays]
    outputs = op.infer_shapes(*specs, **attributes)
    return tuple(tuple(dim if isinstance(dim, int) else None for dim in spec.shape) for spec in outputs)
