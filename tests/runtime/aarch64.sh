#!/usr/bin/env bash
# aarch64.sh DIR [TESTS...]: runs the tests of the native engine, or the given ones, on an emulated AArch64 Linux. DIR is
# what tests/building/aarch64.sh has made; this adds the wheels that tests need (200 MB). Tests that start a process need
# an entry for AArch64 in the kernel's binfmt_misc, and are left out without one.
set -euo pipefail
folder=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- tests/runtime/native tests/compiled/test_compiled_kernels.py
if [ ! -d "$folder/tests_site" ]; then
  python3 -m pip download --quiet --dest "$folder/tests_wheels" --only-binary :all: --python-version 3.11 \
    --implementation cp --abi cp311 --abi abi3 --abi none --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
    onnxruntime numpy ml_dtypes numba onnx array-api-compat scipy pytest hypothesis cloudpickle typing_extensions
  for wheel in "$folder"/tests_wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/tests_site"; done
fi
export PYTHONPATH=$folder/tests_site PYTHONDONTWRITEBYTECODE=1
exec "$folder/qemu-aarch64" -L "$folder/root" "$folder/root/usr/bin/python3.11" -m pytest -q -p no:cacheprovider \
  -o addopts= -m "not stress and not exhaustive" "$@"
