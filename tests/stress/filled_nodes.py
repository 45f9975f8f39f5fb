"""Random nodes of the operators that onnx's reference implementation computes, against ONNX Runtime's kernels.

Each has random attributes and optional inputs. It is computed in an element type that ONNX Runtime lacks, and by ONNX
Runtime in another type.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import pyops
from pyops._filling.filling import BY_REFERENCE
from pyops._filling.typed_nodes import newest_opset
from pyops.errors import FilledNodeWarning, ModelError

Arrays = list[Any]
F32, F64, I64, U64 = (np.dtype(name) for name in ("float32", "float64", "int64", "uint64"))
QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4


@dataclass
class Node:
    """A node with inputs: None for one that is absent; those of the type `known` are changed to the type `lacking`."""

    op_type: str
    inputs: Arrays
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    known: Any = F32
    lacking: Any = F64
    fixed: tuple[int, ...] = ()  # inputs of the type `known` that keep it
    other: tuple[Arrays, dict[str, Any], tuple[tuple[int, ...], ...]] | None = None
    """Inputs and attributes that compute the same but for the order of the outputs' dimensions."""
    expected: Callable[..., tuple[Any, ...]] | None = None
    """What NumPy computes of the inputs, where ONNX Runtime has no kernel."""
    domain: str = ""
    source_opset: int | None = None  # where ONNX Runtime has a kernel for an equal definition

    def __str__(self) -> str:
        shapes = [item if item is None or item.size < 5 else (item.shape, str(item.dtype)) for item in self.inputs]
        return f"{self.op_type}({shapes}, {self.attributes}) of {self.lacking}"


def floats(rng: random.Random, *shape: int) -> Any:
    return np.random.default_rng(rng.getrandbits(32)).uniform(-2, 2, shape).round(2).astype(F32)


def integers(rng: random.Random, *shape: int, dtype: Any = I64) -> Any:
    return np.random.default_rng(rng.getrandbits(32)).integers(0, 6, shape).astype(dtype)


def some(rng: random.Random, **choices: Any) -> dict[str, Any]:
    """Choose a value for each of some attributes."""
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.5}


def window(rng: random.Random, rank: int) -> dict[str, Any]:
    """Choose attributes of a window that moves over `rank` dimensions."""
    chosen: dict[str, Any] = {"strides": [rng.randint(1, 3) for _ in range(rank)]} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        chosen["auto_pad"] = rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    if chosen.get("auto_pad", "NOTSET") == "NOTSET" and rng.random() < 0.5:
        chosen["pads"] = [rng.randint(0, 1) for _ in range(2 * rank)]
    if rng.random() < 0.3:
        chosen["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    return chosen


def image(rng: random.Random, channels: int, rank: int) -> Any:
    return floats(rng, rng.randint(1, 2), channels, *(rng.randint(4, 7) for _ in range(rank)))


def pool(op_type: str) -> Callable[[random.Random], Node]:
    def made(rng: random.Random) -> Node:
        rank = rng.randint(1, 3)
        own = {"count_include_pad": [0, 1]} if op_type == "AveragePool" else {"p": [1, 2, 3]}
        attributes = window(rng, rank) | some(rng, ceil_mode=[0, 1], **own)
        kernel = [rng.randint(2, 3) for _ in range(rank)]
        return Node(op_type, [image(rng, rng.randint(1, 2), rank)], {"kernel_shape": kernel, **attributes})

    return made


def global_pool(op_type: str) -> Callable[[random.Random], Node]:
    return lambda rng: Node(op_type, [image(rng, rng.randint(1, 3), rng.randint(1, 3))])


def convolution(rng: random.Random) -> Node:
    rank, group = rng.randint(1, 3), rng.randint(1, 2)
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    out = group * rng.randint(1, 2)
    weights, bias = floats(rng, out, 2, *kernel), floats(rng, out) if rng.random() < 0.5 else None
    return Node("Conv", [image(rng, 2 * group, rank), weights, bias], {"group": group, **window(rng, rank)})


def transposed_convolution(rng: random.Random) -> Node:
    rank, group = rng.randint(1, 2), rng.randint(1, 2)
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    attributes = window(rng, rank)
    if rng.random() < 0.2:
        attributes["output_padding"] = [min(1, stride - 1) for stride in attributes.get("strides", [1] * rank)]
    if rng.random() < 0.2:
        attributes["output_shape"] = [rng.randint(6, 9) for _ in range(rank)]
    if rng.random() < 0.3:
        attributes["kernel_shape"] = kernel
    bias = floats(rng, group) if rng.random() < 0.5 else None
    return Node(
        "ConvTranspose",
        [image(rng, 2 * group, rank), floats(rng, 2 * group, 1, *kernel), bias],
        {"group": group, **attributes},
    )


GATES = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def recurrent(op_type: str) -> Callable[[random.Random], Node]:
    def made(rng: random.Random) -> Node:
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
        time, batch, size, hidden = (rng.randint(1, 4) for _ in range(4))
        direction = rng.choice(["forward", "reverse", "bidirectional"])
        count = 2 if direction == "bidirectional" else 1
        x, w = floats(rng, time, batch, size), floats(rng, count, gates * hidden, size)
        inputs = [x, w, floats(rng, count, gates * hidden, hidden), floats(rng, count, 2 * gates * hidden), None]
        inputs += [floats(rng, count, batch, hidden) for _ in range(2 if op_type == "LSTM" else 1)]
        inputs += [floats(rng, count, 3 * hidden)] if op_type == "LSTM" else []
        inputs[3:] = [item if rng.random() < 0.5 else None for item in inputs[3:]]
        if rng.random() < 0.2:
            inputs[4] = np.array([rng.randint(1, time) for _ in range(batch)], np.int32)
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        if rng.random() < 0.15:
            attributes["clip"] = 0.3
        if rng.random() < 0.3:
            chosen = [rng.choice(["Relu", "Tanh", "Sigmoid", "Softsign"]) for _ in GATES[op_type]]
            attributes["activations"] = (GATES[op_type] if rng.random() < 0.6 else chosen) * count
        elif rng.random() < 0.1:
            attributes["activations"] = ["HardSigmoid"] * len(GATES[op_type]) * count
            attributes["activation_alpha"] = [0.3] * len(GATES[op_type]) * count
            attributes["activation_beta"] = [0.4] * len(GATES[op_type]) * count
        attributes |= some(rng, linear_before_reset=[0, 1]) if op_type == "GRU" else {}
        if op_type == "LSTM" and rng.random() < 0.1:
            attributes["input_forget"] = 1
        node = Node(op_type, inputs, attributes, 3 if op_type == "LSTM" else 2)
        if rng.random() < 0.3:  # ONNX Runtime has no kernel for it
            node.other = (inputs, attributes, ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2)))
            first = [0, *([5, 6] if op_type == "LSTM" else [5])]
            node.inputs = [
                item.swapaxes(0, 1) if at in first and item is not None else item for at, item in enumerate(inputs)
            ]
            node.attributes = {**attributes, "layout": 1}
        return node

    return made


def resize(rng: random.Random) -> Node:
    rank = rng.randint(1, 3)
    shape = [rng.randint(2, 6) for _ in range(rank)]
    mode = rng.choice(["nearest", "linear", "cubic"])
    ways = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    attributes = {"mode": mode} | some(rng, coordinate_transformation_mode=[*ways, "tf_crop_and_resize"])
    attributes |= some(rng, antialias=[0, 1]) if mode != "nearest" else {}
    attributes |= some(rng, cubic_coeff_a=[-0.5, -0.75], exclude_outside=[0, 1]) if mode == "cubic" else {}
    nearest = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
    attributes |= some(rng, nearest_mode=nearest) if mode == "nearest" else {}
    roi = None
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = np.array([0.1] * rank + [rng.choice([0.9, 1.2])] * rank, F32)
        attributes |= some(rng, extrapolation_value=[9.0])
    scales = np.array([rng.choice([0.5, 0.75, 1, 1.5, 2]) for _ in shape], F32)
    sizes = None
    if rng.random() < 0.4:
        sizes, scales = np.array([rng.randint(1, 8) for _ in shape]), None
        attributes |= some(rng, keep_aspect_ratio_policy=["stretch", "not_larger", "not_smaller"])
    if rng.random() < 0.2:
        axes = rng.sample(range(rank), rank)
        attributes["axes"] = axes
    known, lacking = rng.choice([(F32, F64), (F32, F64), (np.dtype(np.int32), I64)])
    x = floats(rng, *shape) if known is F32 else integers(rng, *shape, dtype=known) * 9
    return Node("Resize", [x, roi, scales, sizes], attributes, known=known, lacking=lacking, fixed=(2,))


def upsample(rng: random.Random) -> Node:
    scales = np.array([1, 1, rng.choice([1, 1.5, 2]), rng.choice([1, 2, 3])], F32)
    return Node("Upsample", [floats(rng, 1, 2, 3, 4), scales], some(rng, mode=["nearest", "linear"]), fixed=(1,))


def normalization(rng: random.Random) -> Node:
    x, channels = image(rng, 3, rng.randint(1, 2)), [abs(floats(rng, 3)) for _ in range(4)]
    attributes = some(rng, epsilon=[1e-2], momentum=[0.3])
    training = rng.random() < 0.4
    attributes |= {"training_mode": 1} if training else {}
    fixed = rng.choice([(1, 2), (3, 4)])
    return Node("BatchNormalization", [x, *channels], attributes, 3 if training else 1, fixed=fixed)


def reduction(op_type: str) -> Callable[[random.Random], Node]:
    def made(rng: random.Random) -> Node:
        x = integers(rng, *(rng.randint(1, 4) for _ in range(rng.randint(1, 3))))
        axes = rng.choice([None, np.array(rng.sample(range(-x.ndim, 0), rng.randint(0, x.ndim)), I64)])
        attributes = some(rng, keepdims=[0, 1], noop_with_empty_axes=[0, 1])
        return Node(op_type, [x, axes], attributes, known=I64, lacking=U64, fixed=(1,))

    return made


def gemm(rng: random.Random) -> Node:
    a, b, c = (rng.randint(1, 4) for _ in range(3))
    attributes = some(rng, transA=[0, 1], transB=[0, 1], alpha=[1.0, 2.0, 0.5], beta=[0.0, 1.0, 3.0])
    left = floats(rng, *((b, a) if attributes.get("transA") else (a, b)))
    right = floats(rng, *((c, b) if attributes.get("transB") else (b, c)))
    third = floats(rng, *rng.choice([(), (c,), (a, 1), (1, c), (a, c)])) if rng.random() < 0.6 else None
    inputs = [None if item is None else np.rint(item * 4).astype(F32) for item in (left, right, third)]
    if rng.random() < 0.7:
        return Node("Gemm", inputs, attributes, known=F32, lacking=I64)
    return Node("Gemm", [item if item is None else abs(item) for item in inputs], attributes, lacking=U64)


def grid_sample(rng: random.Random) -> Node:
    rank = rng.randint(2, 3)
    modes = ["linear", "nearest", "cubic"] if rank == 2 else ["linear", "nearest"]
    attributes = some(rng, mode=modes, padding_mode=["zeros", "border", "reflection"], align_corners=[0, 1])
    grid = floats(rng, 1, *(rng.randint(1, 3) for _ in range(rank)), rank)
    x = floats(rng, 1, 2, *(rng.randint(2, 5) for _ in range(rank)))
    return Node("GridSample", [x, grid], attributes, fixed=rng.choice([(0,), (1,)]))


def col2im(rng: random.Random) -> Node:
    size = [rng.randint(4, 6) for _ in range(2)]
    block = [rng.randint(1, 2) for _ in size]
    chosen = some(rng, dilations=[[1, 1], [2, 2], [1, 2]], pads=[[0, 0, 0, 0], [1, 0, 0, 1]], strides=[[1, 1], [2, 1]])
    dilations, pads, strides = (chosen.get(name, [1, 1]) for name in ("dilations", "pads", "strides"))
    pads = chosen.get("pads", [0] * 4)
    counts = [(size[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
    x = floats(rng, rng.randint(1, 2), 2 * block[0] * block[1], counts[0] * counts[1])
    return Node("Col2Im", [x, np.array(size), np.array(block)], chosen)


def max_unpool(rng: random.Random) -> Node:
    chosen = some(rng, strides=[[2, 2], [1, 1], [2, 1]], pads=[[0, 0, 0, 0], [1, 0, 1, 0]])
    x = floats(rng, 1, 2, 2, 2)
    indices = np.array(rng.sample(range(8), 8)).reshape(1, 2, 2, 2)
    return Node("MaxUnpool", [x, indices], {"kernel_shape": [2, 2], **chosen})


def one_hot(rng: random.Random) -> Node:
    indices = integers(rng, *(rng.randint(1, 3) for _ in range(rng.randint(1, 2)))) - rng.choice([0, 4])
    depth, values = np.array(rng.choice([5, 7]), F32), np.array([0, 3], F32)
    axis = some(rng, axis=[-1, 0, 1, -2])
    if rng.random() < 0.5:
        return Node("OneHot", [indices.astype(F32), depth.astype(I64), values.astype(I64)], axis)
    return Node("OneHot", [indices, depth, values], axis, fixed=(2,))


def arg(op_type: str) -> Callable[[random.Random], Node]:
    def made(rng: random.Random) -> Node:
        attributes = some(rng, axis=[0, 1, -1, -2], keepdims=[0, 1], select_last_index=[0, 1])
        return Node(op_type, [integers(rng, 3, 4)], attributes, known=I64, lacking=U64)

    return made


def top_k(rng: random.Random) -> Node:
    values = np.array(rng.sample(range(40), 12)).reshape(3, 4)
    attributes = some(rng, axis=[0, 1, -1], largest=[0, 1], sorted=[1])
    return Node("TopK", [values, np.array([rng.randint(0, 3)])], attributes, 2, I64, U64, (1,))


def unique(rng: random.Random) -> Node:
    return Node("Unique", [integers(rng, 3, 3)], some(rng, axis=[0, 1, -1], sorted=[0, 1]), 4, I64, np.dtype(np.int32))


def trilu(rng: random.Random) -> Node:
    k = np.array(rng.randint(-3, 3)) if rng.random() < 0.6 else None
    return Node("Trilu", [integers(rng, 2, 3, 4), k], some(rng, upper=[0, 1]), known=I64, lacking=U64, fixed=(1,))


def cum_sum(rng: random.Random) -> Node:
    attributes, axis = some(rng, exclusive=[0, 1], reverse=[0, 1]), np.array(rng.randint(-2, 1), np.int64)
    return Node("CumSum", [integers(rng, 3, 4), axis], attributes, known=I64, lacking=U64, fixed=(1,))


def center_crop_pad(rng: random.Random) -> Node:
    axes = rng.choice([None, [0], [1], [-1, 0]])
    sizes = np.array([rng.randint(1, 7) for _ in (axes or [0, 1])])
    attributes = {} if axes is None else {"axes": axes}
    return Node("CenterCropPad", [floats(rng, 4, 5), sizes], attributes, known=I64, lacking=np.dtype(np.int32))


def rms_normalization(rng: random.Random) -> Node:
    axis = rng.choice([0, 1, 2, -1, -2])
    x = floats(rng, 2, 3, 4)
    attributes = {"axis": axis, **some(rng, epsilon=[1e-2])}
    return Node("RMSNormalization", [x, floats(rng, *x.shape[axis:])], attributes, fixed=rng.choice([(0,), (1,)]))


def quantize(rng: random.Random) -> Node:
    axis, shape = rng.choice([0, 1, -1]), (4, 6)
    kind = np.dtype(rng.choice(["int8", "uint8", "int16", "uint16"]))
    per = rng.choice(["tensor", "axis", "block"])
    blocks = tuple(size // 2 if at == axis % 2 else size for at, size in enumerate(shape))
    sizes = {"tensor": (), "axis": (shape[axis],), "block": blocks}
    scale = abs(floats(rng, *sizes[per])) + 1
    attributes = {"axis": axis} | ({"block_size": 2} if per == "block" else {})
    zero = integers(rng, *sizes[per], dtype=kind) if rng.random() < 0.6 else None
    attributes |= some(rng, saturate=[0, 1])
    if zero is None and rng.random() < 0.5:
        attributes["output_dtype"] = helper.np_dtype_to_tensor_dtype(kind)
    x = np.rint(floats(rng, *shape) * 99).astype(F32)
    inputs = [x, np.ceil(scale), zero]
    return Node("QuantizeLinear", inputs, attributes, lacking=np.dtype(np.int32), fixed=(1,), source_opset=25)


def einsum(rng: random.Random) -> Node:
    equation = rng.choice(["ij,jk->ik", "ij,jk", "...j,jk->...k", "ii->i", "ij->ji", "ij,ij->"])
    shapes = [(3, 3)] * (1 + equation.count(","))
    inputs = [integers(rng, *shape) for shape in shapes]
    return Node("Einsum", inputs, {"equation": equation}, known=I64, lacking=U64)


def elementwise(op_type: str, **choices: Any) -> Callable[[random.Random], Node]:
    return lambda rng: Node(op_type, [floats(rng, *rng.choice([(5,), (2, 3), (2, 1, 4)]))], some(rng, **choices))


def instance_normalization(rng: random.Random) -> Node:
    x = image(rng, 3, rng.randint(1, 3))
    return Node("InstanceNormalization", [x, floats(rng, 3), floats(rng, 3)], some(rng, epsilon=[1e-2]))


def roi_align(rng: random.Random) -> Node:
    count = rng.randint(1, 3)
    corners = abs(floats(rng, count, 2))
    rois = np.concatenate([corners, corners + 1 + abs(floats(rng, count, 2))], 1)
    attributes = some(rng, output_height=[2, 3], output_width=[2], sampling_ratio=[0, 1, 2], spatial_scale=[0.5, 1.0])
    attributes |= some(rng, coordinate_transformation_mode=["half_pixel", "output_half_pixel"])
    inputs = [np.rint(floats(rng, 2, 1, 6, 6) * 8), np.rint(rois * 2) / 2, integers(rng, count) % 2]
    return Node("RoiAlign", inputs, attributes, lacking=np.dtype(ml_dtypes.bfloat16), source_opset=21)


def mel_weights(rng: random.Random) -> Node:
    inputs = [np.array(value) for value in (rng.randint(4, 8), 64, 8192)]
    edges = [np.array(value, F32) for value in (rng.choice([0, 100]), rng.choice([3000, 4000]))]
    return Node("MelWeightMatrix", [*inputs, *edges], some(rng, output_datatype=[1, 11]))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def swiglu(rng: random.Random) -> Node:
    alpha = some(rng, alpha=[0.5, 2.0])

    def expected(a: Any, b: Any) -> tuple[Any, ...]:
        return (a * sigmoid(alpha.get("alpha", 1) * a) * b,)

    return Node("SwiGLU", [floats(rng, 2, 3), floats(rng, 2, 3)], alpha, expected=expected)


def causal_convolution(rng: random.Random) -> Node:
    batch, channels, length, kernel = (rng.randint(1, 3) for _ in range(4))
    attributes = some(rng, activation=["none", "silu", "swish"])
    inputs = [floats(rng, batch, channels, length), floats(rng, channels, 1, kernel)]
    inputs += [floats(rng, channels) if rng.random() < 0.5 else None]
    inputs += [floats(rng, batch, channels, kernel - 1) if rng.random() < 0.5 else None]

    def expected(x: Any, w: Any, bias: Any, past: Any) -> tuple[Any, ...]:
        padded = np.concatenate([np.zeros((batch, channels, kernel - 1)) if past is None else past, x], 2)
        y = np.zeros((batch, channels, length)) + (0 if bias is None else bias[:, None])
        for at in range(length):
            y[:, :, at] += (padded[:, :, at : at + kernel] * w[:, 0]).sum(2)
        y = y if attributes.get("activation", "none") == "none" else y * sigmoid(y)
        return y, padded[:, :, length:]

    lacking = np.dtype(ml_dtypes.bfloat16)
    return Node("CausalConvWithState", inputs, attributes, 2, lacking=lacking, expected=expected)


def flex_attention(rng: random.Random) -> Node:
    heads, group, size = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 4)
    attributes = some(rng, scale=[0.3, 2.0])

    def expected(q: Any, k: Any, v: Any) -> tuple[Any, ...]:
        k, v = (np.repeat(item, group, 1) for item in (k, v))
        scores = q @ k.swapaxes(2, 3) * attributes.get("scale", 1 / np.sqrt(size))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True) @ v,)

    inputs = [floats(rng, 1, heads * group, 3, size), floats(rng, 1, heads, 4, size), floats(rng, 1, heads, 4, 2)]
    return Node("FlexAttention", inputs, attributes, expected=expected, domain="ai.onnx.preview")


def optimizer(op_type: str) -> Callable[[random.Random], Node]:
    def made(rng: random.Random) -> Node:
        count, step, states = rng.randint(1, 2), rng.randint(0, 3), 2 if op_type == "Adam" else 1
        chosen = some(rng, norm_coefficient=[0.1])
        if op_type == "Adagrad":
            chosen |= some(rng, decay_factor=[0.3], epsilon=[0.1])
        elif op_type == "Adam":
            chosen |= some(rng, alpha=[0.5], beta=[0.6], epsilon=[0.1], norm_coefficient_post=[0.2])
        else:
            chosen |= {"alpha": 0.4, "beta": 0.7, "norm_coefficient": 0.2, "mode": rng.choice(["standard", "nesterov"])}
        tensors = [abs(floats(rng, 2, 3)) for _ in range((2 + states) * count)]

        def one(r: Any, x: Any, g: Any, *state: Any) -> tuple[Any, ...]:
            get = chosen.get
            g = g + get("norm_coefficient", 0) * x
            if op_type == "Adagrad":
                total = state[0] + g**2
                rate = r / (1 + step * get("decay_factor", 0))
                return x - rate * g / (np.sqrt(total) + get("epsilon", 1e-6)), total
            if op_type == "Momentum":
                speed = chosen["alpha"] * state[0] + (chosen["beta"] if step else 1) * g
                way = speed if chosen["mode"] == "standard" else g + chosen["alpha"] * speed
                return x - r * way, speed
            alpha, beta = get("alpha", 0.9), get("beta", 0.999)
            first, second = alpha * state[0] + (1 - alpha) * g, beta * state[1] + (1 - beta) * g**2
            rate = r * np.sqrt(1 - beta**step) / (1 - alpha**step) if step else r
            x = x - rate * first / (np.sqrt(second) + get("epsilon", 1e-6))
            return (1 - get("norm_coefficient_post", 0)) * x, first, second

        def expected(r: Any, t: Any, *items: Any) -> tuple[Any, ...]:
            results = [one(r, *items[at::count]) for at in range(count)]
            return tuple(result[of] for of in range(1 + states) for result in results)

        inputs = [np.array(0.1, F32), np.array(step), *tensors]
        outputs, domain = (1 + states) * count, "ai.onnx.preview.training"
        return Node(op_type, inputs, chosen, outputs, expected=expected, domain=domain)

    return made


NODES: dict[str, Callable[[random.Random], Node]] = {
    **{name: pool(name) for name in ("AveragePool", "LpPool")},
    **{name: global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    **{name: recurrent(name) for name in GATES},
    **{f"Reduce{name}": reduction(f"Reduce{name}") for name in ("L1", "L2", "Mean", "Prod", "Sum", "SumSquare", "Max")},
    **{name: arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: elementwise(name) for name in ("Acos", "Asinh", "Atan", "Cosh", "Erf", "HardSwish", "Mish", "Sinh")},
    **{name: elementwise(name) for name in ("Softplus", "Softsign", "Tan")},
    **{name: optimizer(name) for name in ("Adagrad", "Adam", "Momentum")},
    "BatchNormalization": normalization,
    "CausalConvWithState": causal_convolution,
    "CenterCropPad": center_crop_pad,
    "Col2Im": col2im,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "CumSum": cum_sum,
    "Einsum": einsum,
    "Elu": elementwise("Elu", alpha=[0.5, 2.0]),
    "Gelu": elementwise("Gelu", approximate=["none", "tanh"]),
    "Gemm": gemm,
    "FlexAttention": flex_attention,
    "GridSample": grid_sample,
    "HardSigmoid": elementwise("HardSigmoid", alpha=[0.5], beta=[0.1, 0.9]),
    "Hardmax": elementwise("Hardmax", axis=[0, -1]),
    "InstanceNormalization": instance_normalization,
    "MaxUnpool": max_unpool,
    "MelWeightMatrix": mel_weights,
    "OneHot": one_hot,
    "QuantizeLinear": quantize,
    "RMSNormalization": rms_normalization,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Selu": elementwise("Selu", alpha=[0.5], gamma=[2.0]),
    "SwiGLU": swiglu,
    "ThresholdedRelu": elementwise("ThresholdedRelu", alpha=[0.5, -0.5]),
    "TopK": top_k,
    "Trilu": trilu,
    "Unique": unique,
    "Upsample": upsample,
}


def model_of(
    node: Node, inputs: Arrays, attributes: dict[str, Any], opset: int | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return a model of one node, and its feed."""
    names = [f"x{index}" if item is not None else "" for index, item in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    feed = {name: item for name, item in zip(names, inputs, strict=False) if name}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
        for name, item in feed.items()
    ]
    outputs = [f"y{index}" for index in range(node.outputs)]
    made = helper.make_node(node.op_type, names, outputs, name="n", domain=node.domain, **attributes)
    graph = helper.make_graph([made], "g", given, [onnx.ValueInfoProto(name=name) for name in outputs])
    opset = 9 if node.op_type == "Upsample" else opset or newest_opset(onnx.defs.onnx_opset_version())
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    for item in model.graph.output:
        item.type.tensor_type.ClearField("shape")
    return model, feed


def problem(node: Node, seen: Counter[str]) -> str:
    """Return how a node that was filled differs from ONNX Runtime's kernel; empty if it does not, or was not filled."""
    inputs, attributes, orders = node.other or (node.inputs, node.attributes, ())
    try:
        if node.expected:
            expected = list(node.expected(*inputs))
        else:
            source, feed = model_of(node, inputs, attributes, node.source_opset)
            expected = onnxruntime.InferenceSession(source.SerializeToString(), QUIET).run(None, feed)
    except Exception:  # not valid, or there is no second source
        seen["invalid"] += 1
        return ""
    expected = [item.transpose(order) for item, order in zip(expected, orders, strict=False)] or expected
    retyped = [
        item.astype(node.lacking) if item is not None and item.dtype == node.known and at not in node.fixed else item
        for at, item in enumerate(node.inputs)
    ]
    model, feed = model_of(node, retyped, node.attributes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FilledNodeWarning)
        try:
            session = pyops.InferenceSession(model, QUIET, fill_missing=True)
        except (ModelError, Fail):
            seen["refused"] += 1
            return ""
    if not any(BY_REFERENCE in str(item.message) for item in caught):
        seen["not by the reference implementation"] += 1
        return ""
    seen["filled"] += 1
    try:
        found = session.run(None, feed)
    except Exception as error:
        return f"{node}: {type(error).__name__}: {error}"[:500]
    tolerances = (2**-6, 2**-6) if node.lacking.name == "bfloat16" else (1e-3, 1e-4)
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            return f"{node}: the shape is {one.shape}, not {other.shape}"
        if not np.allclose(one.astype(F64), other.astype(F64), *tolerances, equal_nan=True):
            return f"{node}: {one.ravel()[:4]}, not {other.ravel()[:4]}"
    return ""


def problems(op_type: str, seed: int, count: int, seen: Counter[str] | None = None) -> list[str]:
    """Return the problems of `count` random nodes of an operator."""
    rng = random.Random(f"{op_type} {seed}")
    counted = Counter() if seen is None else seen
    return [found for _ in range(count) if (found := problem(NODES[op_type](rng), counted))]
