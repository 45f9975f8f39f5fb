"""The rule that decides which torch operators a model may name.

A model file is untrusted data, so this rule, and not the file, decides what torch runs:

1. The operator is aten's, or of a namespace that this process passed to `register_fallback`.
2. It is functional: it writes to none of its arguments, and returns only tensors or lists of tensors.
3. It takes at least one tensor, and nothing that refers to anything beyond its arguments: no storage, no object of a
   class, no stream. A random generator can only be omitted.
4. A str selects what the operator does (``mode``, ``reduction``, an einsum's ``equation``). It never
   names a file or the like: the allowed str arguments of aten are listed.
5. An operator of aten whose name begins with an underscore is private to torch, and validates few of its arguments;
   only those that public functions of torch leave in a graph are allowed. Also excluded are gradients, names with
   ``unsafe`` in them, operators on sparse, quantized and nested tensors, which ONNX does not have, and operators that
   use indices and sizes without validating them: single kernels of convolutions, and CTC loss, segment reduction and
   fractional pooling, which `pyops.kernels` computes. `argument_checks` validates what other operators are known
   not to validate.
"""

from __future__ import annotations

import functools
import re

from .._torch.private.operators import (
    OpOverload,
    is_mutable,
    is_random,
    operator_names,
    qualified_name,
    schema_arguments,
    schema_returns,
)

TENSORS = {"Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Tensor]]"}
"""The schema types of arguments that are or contain tensors."""

_SCALARS = {"int", "float", "bool", "number", "ScalarType", "Layout", "Device", "MemoryFormat", "str", "Generator"}
_RETURNS = {"Tensor", "List[Tensor]", "Optional[Tensor]"}

_CHOOSING = {
    "activation", "approximate", "driver", "equation", "indexing", "interpolation", "mode", "norm", "ord", "p",
    "pad_mode", "padding", "padding_side", "reduce", "rounding_mode", "side", "UPLO",
}  # fmt: skip

# Private operators that public functions of torch leave in a graph (torch.linalg, torch.nn.functional, Tensor.to).
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
    r"|^fbgemm|^choose_qparams|^int_repr|^q_per_channel|slow_conv|thnn_conv|pin_memory|^from_|^data$|^lift|^alias_with"
    r"|^ctc_loss|^segment_reduce|^fractional_max_pool"
)
# These match a pattern above, but take dense tensors and are safe.
_DENSE = {
    "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine", "unsafe_split", "unsafe_split_with_sizes",
}  # fmt: skip


def reason_against(overload: OpOverload, namespaces: set[str]) -> str:
    """Return why a model may not name an operator in a process that registered `namespaces`; ``""`` if it may."""
    whole, _, kind = qualified_name(overload).partition(".")
    namespace, _, name = whole.partition("::")
    if namespace not in namespaces:
        return f"this process has not registered operators of torch's namespace {namespace!r}"
    if whole not in _known_names() and whole not in operator_names():  # some exist only in TorchScript
        return "torch's dispatcher does not have it"
    if namespace == "aten" and kind.startswith("prim_"):
        return "it is only for TorchScript, and does not validate numbers given for dtypes"
    if is_mutable(overload):
        return "it writes to its arguments"
    returns = schema_returns(overload)
    if not returns or any(item not in _RETURNS for item in returns):
        return f"it returns {', '.join(returns) or 'nothing'}, not only tensors"
    if namespace == "aten" and name.startswith("_") and name not in _PRIVATE:
        return "it is private to torch"
    if namespace == "aten" and _NEVER.search(name) and name not in _DENSE:
        return (
            "models may not use operators of its kind (gradients, convolution kernels, operators on sparse, quantized "
            "or nested tensors, unsafe ones, and those that only pyops.kernels computes)"
        )
    arguments = schema_arguments(overload)
    if not any(item.type in TENSORS for item in arguments):
        return "it takes no tensor"
    for item in arguments:
        element = re.sub(r"^(Optional|List)\[(.*)\]$", r"\2", re.sub(r"^Optional\[(.*)\]$", r"\1", item.type))
        if item.type not in TENSORS and element not in _SCALARS:
            return f"its argument {item.name!r} is {item.type}, which is not plain data"
        if element == "str" and namespace == "aten" and item.name not in _CHOOSING:
            return f"its str argument {item.name!r} is not listed as safe"
    return ""


@functools.cache
def _known_names() -> set[str]:
    # Cached because listing is slow; for a name that is not here, the caller lists them again.
    return operator_names()


def namespaces() -> set[str]:
    """Return every namespace in which torch has operators."""
    return {name.partition("::")[0] for name in operator_names()}


def is_arbitrary(overload: OpOverload) -> bool:
    """Return whether an operator's results are not determined by its arguments: random, or uninitialized memory."""
    name = qualified_name(overload).partition("::")[2]
    return is_random(overload) or re.match(r"(new_)?empty|resize", name) is not None
