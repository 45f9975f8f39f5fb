"""An op with the name of any of ONNX's operators, in its own domain, runs its own kernel."""

import onnx
import pytest

from tests.helpers.scripts import run_script

pytestmark = pytest.mark.stress

NAMES = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})

SCRIPT = """
    inputs = ", ".join(f"x{{{{i}}}}: F32" for i in range({count}))
    exec(f"def kernel({{{{inputs}}}}) -> F32: return x0 + 1", globals())
    onnx_op("names::{name}")(kernel)
    text = '''<ir_version: 8, opset_import: ["" : 17, "names" : 1]>
    g (float[n] x) => (float[n] y) {{{{ t = names.{name}({arguments})  y = Neg(t) }}}}'''
    session = pyops.InferenceSession(onnx.parser.parse_model(text))
    print(session.run(None, {{"x": np.ones(2, np.float32)}})[0].tolist())
"""


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_its_kernel_runs(name: str, count: int):
    script = SCRIPT.format(name=name, count=count, arguments=", ".join(["x"] * count))
    run_script(script.replace("{{", "{").replace("}}", "}"), "[-2.0, -2.0]\n")
