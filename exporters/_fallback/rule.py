"""Which torch operators a model may name: the rule, in one place.

A model is data that may come from anybody, so what it can make torch run is decided here and not by it:

1. The operator is aten's, or of a namespace that this process named in `register_fallback`.
2. It is functional: it writes to none of its arguments, and returns tensors or lists of tensors alone.
3. It takes at least one tensor, and nothing that reaches beyond its arguments: no storage, no object of a
   class, no stream. A random generator can only be left out.
4. A str chooses among what the operator does (``mode``, ``reduction``, an einsum's ``equation``). It never
   names a file or the like: aten's str arguments are listed.
5. A name of aten that begins with an underscore is torch's own business, and checks little of what it is
   given; those that public functions of torch leave in a graph are listed. Names with ``unsafe`` in them, and
   those of sparse, quantized and nested tensors, which ONNX has none of, are out, and so are those
   of gradients and of single kernels of convolutions, which trust the indices and sizes that they are given.
   What others trust, `bounds` checks.
"""

from __future__ import annotations

import functools
import re

from .._torch_private.operators import (
    OpOverload,
    is_mutable,
    is_random,
    operator_names,
    qualified_name,
    schema_arguments,
    schema_returns,
)

TENSORS = {"Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Tensor]]"}
"""The schema types that hold tensors."""

_SCALARS = {"int", "float", "bool", "number", "ScalarType", "Layout", "Device", "MemoryFormat", "str", "Generator"}
_RETURNS = {"Tensor", "List[Tensor]", "Optional[Tensor]"}

_CHOOSING = {
    "activation", "approximate", "driver", "equation", "indexing", "interpolation", "mode", "norm", "ord", "p",
    "pad_mode", "padding", "padding_side", "reduce", "rounding_mode", "side", "UPLO",
}  # fmt: skip

# In the graphs of public functions: of torch.linalg, torch.nn.functional, torch.special, Tensor.to.
_PRIVATE = {
    "__and__", "__lshift__", "__or__", "__rshift__", "__xor__",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_addmm_activation", "_aminmax",
    "_batch_norm_with_update_functional", "_conj_physical",
    "_cdist_forward", "_convolution", "_convolution_mode", "_euclidean_dist", "_fused_rms_norm",
    "_grouped_mm", "_int_mm", "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet",
    "_linalg_solve_ex", "_linalg_svd", "_log_softmax", "_logcumsumexp", "_lu_with_info",
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "_pack_padded_sequence", "_pad_circular", "_pad_enum", "_pad_packed_sequence", "_pdist_forward", "_prelu_kernel",
    "_safe_softmax", "_scaled_mm", "_scaled_mm_v2", "_softmax", "_standard_gamma", "_to_copy", "_trilinear",
    "_unique", "_unique2",
    "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_weight_norm", "_weight_norm_interface", "_weight_int8pack_mm",
}  # fmt: skip

_NEVER = re.compile(
    r"backward|^batch_norm_(elemt|gather|stats|update)"
    r"|unsafe|sparse|quantize|qscheme|nested|mkldnn|cudnn|miopen|to_mkldnn|^set_|_coo|_csr|_csc|_bsr|_bsc"
    r"|slow_conv|thnn_conv|pin_memory|^from_|^data$|^lift|^alias_with"
)
# Named by a pattern, and dense all the same.
_DENSE = {
    "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine", "segment_reduce", "unsafe_split",
    "unsafe_split_with_sizes",
}  # fmt: skip


def refusal(overload: OpOverload, namespaces: set[str]) -> str:
    """Why a model may not name the operator in a process that named these namespaces; empty if it may."""
    whole, _, kind = qualified_name(overload).partition(".")
    namespace, _, name = whole.partition("::")
    if namespace not in namespaces:
        return f"this process did not ask for operators of torch's namespace {namespace!r}"
    if not _is_known(f"{namespace}::{name}"):
        return "torch's dispatcher does not know it"
    if namespace == "aten" and kind.startswith("prim_"):
        return "it is TorchScript's alone, and takes numbers for dtypes unchecked"
    if is_mutable(overload):
        return "it writes to its arguments"
    returns = schema_returns(overload)
    if not returns or any(item not in _RETURNS for item in returns):
        return f"it returns {', '.join(returns) or 'nothing'} and not tensors alone"
    if namespace == "aten" and name.startswith("_") and name not in _PRIVATE:
        return "it is private to torch"
    if namespace == "aten" and _NEVER.search(name) and name not in _DENSE:
        return (
            "it is of a kind that models have none of (gradients, kernels of convolutions, unsafe, sparse, quantized, "
            "nested, or of the process)"
        )
    arguments = schema_arguments(overload)
    if not any(item.type in TENSORS for item in arguments):
        return "it takes no tensor"
    for item in arguments:
        element = re.sub(r"^(Optional|List)\[(.*)\]$", r"\2", re.sub(r"^Optional\[(.*)\]$", r"\1", item.type))
        if item.type not in TENSORS and element not in _SCALARS:
            return f"its argument {item.name!r} is {item.type}, which is no plain data"
        if element == "str" and namespace == "aten" and item.name not in _CHOOSING:
            return f"its argument {item.name!r} is a str that is not among the known ones"
    return ""


def _is_known(name: str) -> bool:
    """Whether torch's dispatcher has it; TorchScript has others."""
    return name in _known_names() or name in operator_names()


@functools.cache
def _known_names() -> set[str]:
    # Listing them takes long; there may be more later.
    return operator_names()


def namespaces() -> set[str]:
    """Every namespace that torch has operators of."""
    return {name.partition("::")[0] for name in operator_names()}


def is_arbitrary(overload: OpOverload) -> bool:
    """Whether what it returns is not determined by its arguments: random numbers, or memory as it was found."""
    name = qualified_name(overload).partition("::")[2]
    return is_random(overload) or re.match(r"(new_)?empty|resize", name) is not None
