"""Optimization of an exported model that changes no value and keeps every call of a declared op.

A kernel may have side effects: it may count, log or draw random numbers. The passes remove nodes whose outputs are
unused, whatever their domain; ONNX Runtime does not remove a custom operator. Equal nodes are not merged here, because
ONNX Runtime merges those that it knows.

torch's exporter runs ``onnxscript.optimizer.optimize``, which changes values: it treats 1e-10 as 0 and 1.000001
as 1, merges clips whose bounds do not overlap, and folds constants with ONNX's reference implementation, in which some
operators overflow. The same passes therefore run here with only the rules that move values, and fold only operators
that are a single NumPy function. ONNX Runtime does the rest when it loads the model, with its own kernels.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
import onnx_ir
from onnx_ir.passes import common as passes
from onnxscript.optimizer import fold_constants_ir
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules import common as rules

from pyops._core import op_versions

from .._lowering.emission_record import Keepers
from .._torch.private.patching import one_at_a_time

# Rules that compute, or that compare a constant with a tolerance, are left out.
_MOVING = [
    rules.collapse_slice_rule,
    rules.collapse_slice2_rule,
    rules.materialize_reshape_shape_rule,
    rules.no_op_cast_rule,
    rules.no_op_expand_rule,
    rules.reshape_reshape_rule,
    rules.no_op_transpose_rule,
    rules.transpose_transpose_rule,
    rules.unsqueeze_unsqueeze_rule,
    rules.squeeze_reshape_1d_rule,
    rules.no_op_dynamic_scatter_nd_rule,
]

_FOLDED = {
    *("Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "NonZero"),
    *("Pad", "Range", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Squeeze", "Tile"),
    *("Transpose", "Trilu", "Unsqueeze", "Where"),
    *("And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "IsInf"),
    *("IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"),
    *("Abs", "Add", "Ceil", "Clip", "CumSum", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal"),
    *("ReduceMax", "Round", "Sqrt", "Sub"),
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log", "Sin", "Sinh", "Tan"),
}


@one_at_a_time  # rules are shared objects that store their matches
def optimize(model: onnx_ir.Model, functions: Container[tuple[str, str]] = ()) -> None:
    """Optimize a model in place.

    Parameters
    ----------
    functions : container of (str, str)
        Domain and name of functions that will be added to the model, whose calls are kept as well.
    """
    passes.InlinePass(lambda body: not op_versions(body.domain, body.name))(model)
    with Keepers() as keepers:
        for node in all_nodes(model):
            if op_versions(node.domain, node.op_type) or (node.domain, node.op_type) in functions:
                keepers.keep(node.outputs)
        _run_passes(model)


def _run_passes(model: onnx_ir.Model) -> None:
    for _ in range(2):
        # A number that NumPy divides by 0 is not folded: ONNX Runtime refuses an integer.
        with np.errstate(all="ignore", divide="raise"):
            fold_constants_ir(model, onnx_shape_inference=True, should_fold=_should_fold)
        RewritePass(_MOVING)(model)
        passes.RemoveUnusedNodesPass()(model)
        passes.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call] # onnx_ir has no types for it
        passes.RemoveUnusedOpsetsPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.LiftSubgraphInitializersToMainGraphPass()(model)
    passes.DeduplicateInitializersPass()(model)
    passes.OutputFixPass()(model)
    passes.NameFixPass()(model)


def _should_fold(node: onnx_ir.Node) -> bool | None:
    """Decide for ``fold_constants_ir`` on a node with constant inputs: False, or None to decide by their sizes."""
    return None if not node.domain and node.op_type in _FOLDED else False


def all_nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    """Yield every node of the graph, its subgraphs and the model's functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()
