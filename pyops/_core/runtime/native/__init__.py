"""The native engine: ops hosted through ONNX Runtime's C API, called with ctypes.

`op_registration` hosts the ops of a session, `callbacks` has what ONNX Runtime calls, and `kernel_node` computes a node
whose kernel Python calls. Others make nodes too: `pyops._core.cuda`, and the satellite for machine code.
"""

import sys
import sysconfig

from ....errors import EngineError

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # References to arrays, and what its callbacks share, are read while no other thread runs.
    raise EngineError(
        f"pyops runs no sessions on free-threaded builds of Python, and this is one: {sys.version.split(' (')[0]} at "
        f"{sys.executable}; run them on the build of Python {sys.version_info[0]}.{sys.version_info[1]} with a global "
        "interpreter lock"
    )
