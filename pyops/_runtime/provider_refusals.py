"""Explanations of why ONNX Runtime could not start the CUDA provider."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .._schema import devices
from ..errors import DeviceError

_NO_GPU = (
    "there is no NVIDIA GPU, or its driver, CUDA or cuDNN are not those that this onnxruntime-gpu needs (python -m "
    "pyops doctor says what there is{})"
)
_OPTIONS = "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"

_CUDA_FAILURE = re.compile(r"CUDA failure (?P<status>\d+): (?P<words>.*?) ; ")
_NO_OPTION = re.compile(r'Unknown provider option: "(?P<name>[^"]*)"')
_NO_DEVICE = re.compile(r"Invalid device ID: (?P<device>-?\d+), must be between 0 \(inclusive\) and (?P<count>\d+) ")
_NO_VALUE = re.compile(r'Failed to parse provider option "(?P<name>[^"]*)"')


def not_started(reason: str = _NO_GPU.format("")) -> DeviceError:
    """Return the error to raise when ONNX Runtime did not start the CUDA provider."""
    return DeviceError(
        f"{devices.CUDA_PROVIDER} is asked for and ONNX Runtime has not started it: {reason}; to run on the CPU, ask "
        'for providers=["CPUExecutionProvider"]'
    )


def explained(error: Exception, providers: Any, provider_options: Any) -> DeviceError | None:
    """Translate ONNX Runtime's failure to start the CUDA provider; return None for any other error.

    Parameters
    ----------
    providers, provider_options
        The arguments that the session was created with.
    """
    reason = _reason(str(error), providers, provider_options)
    if reason is None:
        return None
    refusal = not_started(reason)
    refusal.__cause__ = error
    return refusal


def provider_names(providers: Any) -> list[str]:
    """Return the names in a session's `providers` argument."""
    return [item if isinstance(item, str) else item[0] for item in providers or ()]


def _options(providers: Any, provider_options: Any) -> Iterator[tuple[str, Any]]:
    for index, item in enumerate(providers or ()):
        yield (item, provider_options[index] if provider_options else {}) if isinstance(item, str) else item


def _reason(text: str, providers: Any, provider_options: Any) -> str | None:
    if match := _CUDA_FAILURE.search(text):
        status, words = int(match["status"]), f"CUDA's {match['status']}: {match['words']}"
        if status in devices.BREAKING_STATUSES:
            return devices.broken(words)
        return (
            f"the GPU's memory is full ({words})" if status == devices.OUT_OF_MEMORY else _NO_GPU.format(f"; {words}")
        )
    if match := _NO_OPTION.search(text):
        return f"it has no option {match['name']!r}; its options are at {_OPTIONS}"
    if match := _NO_DEVICE.search(text):
        if match["count"] == "0":
            return _NO_GPU.format("")
        return (
            f"device_id is {match['device']} and the GPUs here are 0 to {int(match['count']) - 1} "
            "(CUDA_VISIBLE_DEVICES hides others)"
        )
    if match := _NO_VALUE.search(text):
        # ONNX Runtime's message names the default, not the value that was given.
        given = dict(_options(providers, provider_options))[devices.CUDA_PROVIDER][match["name"]]
        return f"its option {match['name']!r} cannot be {given!r}; what it can be is at {_OPTIONS}"
    return None
