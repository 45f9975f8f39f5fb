"""Sample calls of operators with every behaviour that coverage must handle, in the form of torch's own database."""

import os
import time
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch.testing._internal.common_dtype import _dispatch_dtypes
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import exporters
from tests.exporters.declared import declare


def _info(name, op, *samples, dtypes=(torch.float32,)):
    def sample_inputs(info, device, dtype, requires_grad, **arguments):
        return iter([SampleInput(first, args=tuple(rest)) for first, *rest in samples])

    return OpInfo(name, op=op, dtypes=_dispatch_dtypes(dtypes), sample_inputs_func=sample_inputs)


def _hang(x):
    time.sleep(3600)


def _half(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x / 2


_declared = exporters.custom_op(declare(_half, "planted::Half"), "planted::half")
_generator = torch.Generator()
_x = torch.arange(12.0).reshape(4, 3) + 1
_empty = torch.ones(0, 3)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls it a beta
    _sparse = _x.to_sparse_csr()

ops = [
    _info("twice", lambda x: x + x, (_empty,), (_x,), (-_x,)),
    _info("missing", torch.lgamma, (_x,)),
    _info("rounded", lambda x: torch.polygamma(1, x), (_x - 2.001,)),
    _info("crash", lambda x: os._exit(11), (_x,)),
    _info("wrong", torch.special.log_ndtr, (_x - 20,)),
    _info("random", torch.randn_like, (_x,)),
    _info("uninitialised", torch.empty_like, (_x,)),
    _info("kept", lambda x, p: torch.nn.functional.dropout(x, p), (_x, 0.0)),
    _info("filled", lambda x: torch.empty_like(x).fill_(3), (_x,)),
    _info("randomised", lambda x: torch.svd_lowrank(x, 3)[1], (_x,)),
    _info("number", lambda x: x.sum().item(), (_x,)),
    _info("untouched", lambda n: torch.ones(n), (3,)),
    _info("error", lambda x: x.reshape(5), (_x,)),
    _info("integer", lambda x: x + 1, (_x.long(),), dtypes=[torch.int64]),
    _info("gathered", lambda x, index: x[index], (_x, torch.tensor([3, 0, 1]))),
    _info("factor", torch.linalg.cholesky, (_x @ _x.T + torch.eye(4),)),
    _info("rows", lambda x: x.unbind(), (_x,)),
    _info("specialised", lambda x: x + int(x.shape[0]) + int(x.shape[1]), (_x,)),
    _info("grown", torch.exp, (torch.tensor(1.0),), (_x,)),
    _info("scalar", torch.exp, (torch.tensor(1.0),)),
    _info("hang", _hang, (_x,)),
    _info("beside", lambda x: (x + 1, x.dim()), (_x,)),
    _info("drawn", lambda x: (x + 1, torch.rand(()).item()), (_x,)),
    _info("branching", lambda x: x if x.sum() > 0 else -x, (_x,)),
    _info("generated", lambda x: torch.bernoulli(x / 12, generator=_generator), (_x,)),
    _info("declared", lambda x: _declared(x), (_x,)),
    _info("places", torch.nonzero, (torch.tensor(3.0),)),
    _info("sparse", lambda x: x.to_dense(), (_sparse,)),
]
