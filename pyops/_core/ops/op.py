"""`Op`: a Signature with its kernels, its shape function and its decomposition."""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

import numpy as np

from ..._support.element_types import describe
from ..._support.text_tables import html_parts
from ...errors import DeclarationError, InputError, ShapeInferenceError
from ..cuda.cuda_arguments import CopyingKernel, check_given, check_host_inputs, returning_cupy
from ..cuda.devices import DEVICE_TYPES, DeviceType, cupy, is_cupy
from ..satellites import satellite
from ..schema import call_validation
from ..schema.declaration import Compile, FastMath
from ..schema.shape_inference import infer
from ..schema.signature import Signature
from ..schema.tensor_specs import TensorSpec
from . import source_location
from .decomposition import Decomposition
from .node_state import make_state

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Callable[..., TensorSpec | tuple[TensorSpec, ...]])

_revisions = itertools.count(1)


def as_kernel(
    signature: Signature,
    function: Callable[..., Any],
    plain: Callable[..., Any],
    device_types: Sequence[str],
    compile: Compile = False,
    parallel: str | None = None,
    fastmath: FastMath = False,
) -> Callable[..., Any]:
    """Return the kernel for a declaration: `function` itself, or with ``compile=`` a compiled one.

    A compiled kernel has `plain`, the function to call where compiled code cannot run, as an attribute.

    Raises
    ------
    DeclarationError
        The arguments are invalid, or the kernel can never be compiled, or its results are cached by its arguments.
    MissingDependencyError
        numba is not installed and `compile` is not ``"try"``.
    """
    if hasattr(function, "cache_info"):
        raise DeclarationError(
            f"{signature.qualified_name}: functools.lru_cache needs arguments that can be keys, and arrays cannot; put "
            "it on a function that the kernel calls, or make what is the same in each call with register_setup"
        )
    if tuple(device_types) != ("cpu",) and (compile or parallel or fastmath):
        raise DeclarationError(
            f"{signature.qualified_name}: compile, parallel and fastmath are for CPU kernels; leave device_types out, "
            'and register the CUDA kernel without them: register_kernel("cuda")'
        )
    if compile is not False:
        if signature.takes_state:
            raise DeclarationError(
                f"{signature.qualified_name}: compiled kernels cannot take `state`, which is a Python object; leave "
                "compile out, or make the state an input"
            )
        kernel: Callable[..., Any] = satellite("compiler").make(signature, function, plain, compile, parallel, fastmath)
        return kernel
    if parallel is not None or fastmath:
        raise DeclarationError(
            f"{signature.qualified_name}: parallel and fastmath are for compiled kernels; add compile=True"
        )
    return function


class Op(Generic[P, R]):
    """An ONNX operator implemented by a Python function, created by `onnx_op`.

    Calling it runs the kernel on arrays without a session, with the same validation as in a session: the CPU
    kernel on NumPy arrays, the CUDA kernel on CuPy arrays.

    Attributes
    ----------
    signature : Signature
        The operator as ONNX sees it. It never changes.
    kernels : dict
        Device type (``"cpu"``, ``"cuda"``) to function. A redeclaration replaces the kernels. There is always
        one for the CPU: if none is registered, one that copies to the GPU and back.
    host_inputs : tuple of str
        The inputs that the CUDA kernel takes as NumPy arrays.
    shape_function : callable or None
        The function registered with `register_shape_inference`.
    setup : callable or None
        The function registered with `register_setup`.
    samples : callable or None
        The function registered with `register_samples`.
    decompositions : tuple of Decomposition
        What was registered with `register_decomposition`.

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

    # Not among the attributes that a redeclaration replaces.
    __slots__ = ("__dict__", "__weakref__", "_revision")
    _revision: ctypes.c_int64
    __name__: str
    signature: Signature
    kernels: dict[str, Callable[..., Any]]
    host_inputs: tuple[str, ...]
    shape_function: Callable[..., Any] | None
    setup: Callable[..., Any] | None
    samples: Callable[[], Any] | None = None
    decompositions: tuple[Decomposition, ...] = ()

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create an op without a body."""
        op = super().__new__(cls)
        # A C integer, because machine code compares it, without the interpreter, to see whether it is outdated.
        op._revision = ctypes.c_int64()
        return op

    def __init__(
        self,
        signature: Signature,
        function: Callable[P, R],
        device_types: Sequence[str] = ("cpu",),
        host_inputs: Sequence[str] = (),
    ) -> None:
        self.signature = signature
        kernels: dict[str, Callable[..., Any]] = dict.fromkeys(device_types, function)
        if "cpu" not in kernels:
            kernels["cpu"] = CopyingKernel(signature, function, host_inputs)
        functools.update_wrapper(self, kernels["cpu"], updated=())
        self.kernels = kernels
        self.host_inputs = tuple(host_inputs)
        self.shape_function = None
        self.setup = None

    @property
    def domain(self) -> str:
        """Return the operator's domain: ``mylibrary``."""
        return self.signature.domain

    @property
    def name(self) -> str:
        """Return the op type: ``AddRound``."""
        return self.signature.name

    @property
    def version(self) -> int:
        """Return the first opset version of the domain to which this declaration applies."""
        return self.signature.version

    def __call__(self, /, *inputs: P.args, **attributes: P.kwargs) -> R:
        """Run the kernel on arrays, without a session.

        Parameters
        ----------
        *inputs : numpy.ndarray or cupy.ndarray
            The declared inputs, None for an absent optional one. The kernel receives read-only views.
        **attributes
            The declared attributes.

        Returns
        -------
        array or tuple of arrays
            As the declared function returns them.

        Raises
        ------
        InputError
            The arguments do not match the declaration.
        OutputError
            The kernel's result does not match the declaration, or the shapes from the shape function.
        ShapeInferenceError
            The shape function does not return what is declared.
        CompileError
            The kernel cannot be compiled for these arguments.
        DeclarationError
            An array is a CuPy array, and the op has no kernel for ``"cuda"``; or the kernel takes `state`, and no setup
            function is registered.
        MissingDependencyError
            The kernel needs CuPy, which is not installed.
        DeviceError
            The op has only a CUDA kernel, and there is no GPU.
        """
        arrays, named = call_validation.split_arguments(self.signature, inputs, attributes)
        device_type = "cuda" if any(map(is_cupy, arrays)) else "cpu"
        outputs = compute_op(self, arrays, named, device_type=device_type)
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
        """Register the decorated function as the kernel for a device type.

        The function takes the same parameters as the declared one, `out` and `state` included. A CUDA kernel takes and
        returns CuPy arrays.

        Parameters
        ----------
        device_type : str
            ``"cuda"``, or ``"cpu"`` to replace the CPU kernel.
        host_inputs : sequence of str
            For a CUDA kernel, as in `onnx_op`.
        compile, parallel, fastmath
            For a CPU kernel, as in `onnx_op`. The declared function remains the plain kernel that runs where
            compiled code cannot, unless it is only a CUDA kernel.

        Raises
        ------
        DeclarationError
            The device type or a host input is unknown, or the function's parameters differ from the declared
            ones.
        MissingDependencyError
            `compile` is True or ``"debug"``, and numba is not installed.

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
        if device_type not in DEVICE_TYPES:
            raise DeclarationError(
                f"{self.signature.qualified_name}: register_kernel got {device_type!r}; expected "
                f"{' or '.join(map(repr, DEVICE_TYPES))}"
            )
        named = check_host_inputs(self.signature, host_inputs, (device_type,))

        def register(function: F) -> F:
            self.signature.check_callable(function, self.signature.kernel_keywords)
            declared = self.kernels["cpu"]
            is_copying = isinstance(declared, CopyingKernel)
            plain = function if is_copying else getattr(declared, "plain", declared)
            made = as_kernel(self.signature, function, plain, (device_type,), compile, parallel, fastmath)
            self.kernels[device_type] = made
            if device_type == "cuda":
                self.host_inputs = named
                if is_copying:
                    self.kernels["cpu"] = CopyingKernel(self.signature, function, named)
            self._revise()
            return function

        return register

    def _revise(self) -> None:
        """Give the body a revision that no other has, even one that another thread makes now."""
        self._revision.value = next(_revisions)

    def register_shape_inference(self, function: S) -> S:
        """Register the decorated function as the op's shape function.

        The function takes `pyops.shapes.TensorSpec` objects in place of arrays (None for an absent
        input) and the attributes, and returns a spec, or a tuple of specs for several outputs.

        Raises
        ------
        DeclarationError
            The function's parameters differ from the declared ones.

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
        self.signature.check_callable(function)
        self.shape_function = function
        self._revise()
        return function

    def register_setup(self, function: F) -> F:
        """Register the decorated function as the one that makes the state of a node.

        It is called with the attributes, as keywords, once for each node when a session is made. What it returns is
        passed to the kernels of that node as the keyword-only parameter `state`, which is not an attribute.

        Raises
        ------
        DeclarationError
            The declared function does not take `state`, or this function does not take the attributes.

        Examples
        --------
        >>> import numpy as np, pyops
        >>> from numpy.typing import NDArray
        >>> from typing import Any
        >>> @pyops.onnx_op("setups::Index")
        ... def index(word: NDArray[np.str_], *, known: list[str], state: Any = None) -> NDArray[np.int64]:
        ...     return np.array([state[key] for key in word.flat]).reshape(word.shape)
        >>> @index.register_setup
        ... def _(*, known):
        ...     return {word: number for number, word in enumerate(known)}
        >>> index(np.array(["b", "a"]), known=["a", "b"])
        array([1, 0])
        """
        self.signature.check_setup(function)
        self.setup = function
        self._revise()
        return function

    def register_samples(self, function: F) -> F:
        """Register the decorated function as the one that returns a strategy for samples of the op.

        `pyops.testing.check` without inputs, ``pyops check`` and ``pytest --pyops-check`` check the samples that
        it generates. The function takes no arguments, and hypothesis is needed only when it is called.

        Examples
        --------
        >>> import numpy as np, pyops
        >>> from numpy.typing import NDArray
        >>> @pyops.onnx_op("samples::Board")
        ... def board(x: NDArray[np.float32]) -> NDArray[np.float32]:
        ...     return x.reshape(3, 3).T
        >>> @board.register_samples
        ... def _():
        ...     from pyops.testing import strategies
        ...     return strategies.samples(board, shapes=(3, 3))
        >>> pyops.testing.check(board, checks="generated")["generated"].reason
        '100 samples, of which the kernel refuses 0'
        """
        self.samples = function
        return function

    def register_decomposition(self, function: Any = None, /, *, pattern_only: bool = False) -> Any:
        """Register the decorated function as what the op is, in torch or in onnxscript.

        It is the body with which a model of the op runs without pyops, and the reference with which
        `pyops.testing.check` compares kernels, gradients and bodies. An op has one; another one replaces it.

        Parameters
        ----------
        function : callable or onnxscript.OnnxFunction
            Takes what the declared function takes: tensors of torch, or values of onnxscript.
        pattern_only : bool
            Add the function as a description of nodes that the op may replace, and as nothing else.

        Raises
        ------
        DeclarationError
            The function's parameters differ from the declared ones.

        Examples
        --------
        >>> import numpy as np, pyops
        >>> from numpy.typing import NDArray
        >>> @pyops.onnx_op("bodies::Square")
        ... def square(x: NDArray[np.float32]) -> NDArray[np.float32]:
        ...     return x * x
        >>> @square.register_decomposition
        ... def _(x):
        ...     return x.pow(2)
        >>> square.decomposition is square.decompositions[0]
        True
        """

        def register(function: F) -> F:
            added = Decomposition(self.signature, function, pattern_only)
            added.validate()
            # A cell that runs again declares the same one again.
            others = [item for item in self.decompositions if item.name != added.name]
            self.decompositions = (*(item for item in others if item.pattern_only or pattern_only), added)
            return function

        return register if function is None else register(function)

    @property
    def decomposition(self) -> Decomposition | None:
        """Return the decomposition that is the op's body and reference, or None if there is none."""
        return next((item for item in self.decompositions if not item.pattern_only), None)

    def compile(self, /, *inputs: Any, **attributes: Any) -> None:
        """Compile the CPU kernel now rather than at its first call.

        Parameters
        ----------
        *inputs : numpy.ndarray
            Examples of the dtypes and ranks to compile for.
        **attributes
            As for a call.

        Raises
        ------
        DeclarationError
            The kernel is not declared with ``compile=``.
        CompileError
            The kernel cannot be compiled; the message has numba's reason and line.
        InputError
            The examples do not match the declaration.
        """
        function = self.shape_function
        shapes = None if function is None else functools.partial(output_shapes, self.signature, function)
        satellite("compiler").compile_kernel(self.signature, self.kernels["cpu"], shapes, inputs, attributes)

    def infer_shapes(
        self, /, *specs: TensorSpec | np.ndarray[Any, Any] | None, **attributes: Any
    ) -> tuple[TensorSpec, ...]:
        """Run the shape function, or else infer the shapes of the body that the decomposition gives.

        Parameters
        ----------
        *specs : TensorSpec, numpy.ndarray or None
            One per input, None if absent. An array is a spec whose value is known.
        **attributes
            As for a call.

        Returns
        -------
        tuple of TensorSpec
            One per output.

        Raises
        ------
        ShapeInferenceError
            The op has neither a shape function nor a decomposition, or it returned something other than declared.
        InputError
            The specs or attributes do not match the declaration.
        """
        function, decomposition = self.shape_function, self.decomposition  # another thread may replace them
        if function is None and decomposition is not None:
            function = functools.partial(satellite("bodies").infer_shapes, decomposition)
        if function is None:
            raise ShapeInferenceError(
                f"{self.signature.qualified_name} has no shape function; register one with "
                f"@{self.__name__}.register_shape_inference, or a decomposition"
            )
        known = [TensorSpec.of(given) if isinstance(given, np.ndarray) else given for given in specs]
        for given in known:
            if given is not None and not isinstance(given, TensorSpec):
                raise InputError(
                    f"{self.signature.qualified_name}: infer_shapes got {describe(given)}; pass specs, for example "
                    f"{self.__name__}.infer_shapes(pyops.shapes.TensorSpec((2, 3), np.float32))"
                )
        return infer(self.signature, function, known, attributes)

    @property
    def device_types(self) -> tuple[str, ...]:
        """Return the device types with a registered kernel."""
        own = {name for name, kernel in self.kernels.items() if not isinstance(kernel, CopyingKernel)}
        return tuple(name for name in DEVICE_TYPES if name in own)

    @property
    def location(self) -> str:
        """Return where the CPU kernel is defined, as ``file:line``."""
        return source_location.location(self.kernels["cpu"])

    @functools.cached_property
    def _carrier(self) -> Callable[[], None]:
        """Return the function that `op_pickling` pickles in place of what the op consists of."""
        return lambda: None

    # Like a function, an op is never copied; `op_pickling` says how it gets to other processes.
    def __copy__(self) -> Op[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Op[P, R]:
        return self

    def __repr__(self) -> str:
        version = "" if self.version == 1 else f", version {self.version}"
        return f"<Op {self.signature}{version}>"

    def _repr_html_(self) -> str:
        kernel, signature = self.kernels["cpu"], self.signature
        rows = [("", "name", "type")]
        for item in signature.inputs:
            kind = "variadic input" if item.variadic else "optional input" if item.optional else "input"
            rows.append((kind, item.name, str(item.type)))
        rows += [("attribute", item.name, str(item).partition(": ")[2]) for item in signature.attributes]
        rows += [
            ("variadic output" if item.variadic else "output", item.name, str(item.type)) for item in signature.outputs
        ]
        shapes = ", shape function" if self.shape_function is not None else ""
        shapes += ", decomposition" if self.decomposition is not None else ""
        facts = [f"kernels {', '.join(self.device_types)}{shapes}", source_location.source_line(kernel)]
        facts += filter(None, [source_location.package_of(self.domain, kernel)])
        summary = (inspect.getdoc(kernel) or "").splitlines()[:1]
        return html_parts([f"{signature.qualified_name}, version {self.version}", *summary, rows, " · ".join(facts)])


AnyOp = Op[..., Any]


def compute_op(op: AnyOp, arrays: Sequence[Any], attributes: Mapping[str, Any], **how: Any) -> tuple[Any, ...]:
    """Run an op's kernel as `run_kernel` does, and validate its outputs against the shape function, too."""
    outputs = run_kernel(op, arrays, attributes, **how)
    if (function := op.shape_function) is not None:  # another thread may replace it
        check_output_shapes(op.signature, function, arrays, attributes, outputs)
    return outputs


def run_kernel(
    op: AnyOp,
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    device_type: str = "cpu",
    state: Callable[[AnyOp, Mapping[str, Any]], Any] = make_state,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> tuple[Any, ...]:
    """Run an op's kernel, and validate its outputs against the declaration.

    Parameters
    ----------
    arrays : sequence
        One per input, None if absent.
    attributes : mapping
        As returned by `Signature.convert_attributes`.
    state : callable
        Returns the state for these attributes: `make_state`, or an instance of `States`.
    wrap : callable, optional
        Gets the kernel, and returns what to call in its place.

    Returns
    -------
    tuple of arrays
        One per output.

    Raises
    ------
    PyopsError
        As listed at `Op.__call__`.
    """
    kernel = kernel_of(op, device_type)
    function = wrap(kernel) if wrap else kernel
    if op.signature.takes_state:
        function = functools.partial(function, state=state(op, attributes))
    if device_type == "cuda":
        check_given(op.signature, arrays, op.host_inputs)
        function = returning_cupy(op.signature, function)
    return call_validation.call(op.signature, function, arrays, attributes)


def check_output_shapes(
    signature: Signature, function: Any, arrays: Sequence[Any], attributes: Any, outputs: Any, with_values: bool = True
) -> None:
    """Raise an `OutputError` if outputs have other shapes than a shape function gives; see `output_shapes`."""
    shapes = output_shapes(signature, function, arrays, attributes, with_values)
    call_validation.check_shapes(signature, shapes, outputs, arrays)


def kernel_of(op: AnyOp, device_type: str) -> Callable[..., Any]:
    """Return an op's kernel for a device type.

    Raises
    ------
    MissingDependencyError
        The device type is ``"cuda"``, and CuPy is not installed.
    DeclarationError
        No kernel is registered for it.
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
    signature: Signature,
    function: Callable[..., Any],
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    with_values: bool = False,
) -> tuple[tuple[int | None, ...], ...]:
    """Return the output shapes that a shape function returns for the shapes of these arrays.

    Parameters
    ----------
    arrays : sequence of array or None
        One per input.
    with_values : bool
        If True, the function gets the values of small arrays too, so that the result holds for these values only.

    Returns
    -------
    tuple of tuple of int or None
        One per output; None for a size known only after the kernel has run.

    Raises
    ------
    ShapeInferenceError
        As for `Op.infer_shapes`.
    """
    specs = [None if array is None else TensorSpec.of(array, with_values) for array in arrays]
    outputs = infer(signature, function, specs, attributes)
    return tuple(tuple(dim if isinstance(dim, int) else None for dim in spec.shape) for spec in outputs)
