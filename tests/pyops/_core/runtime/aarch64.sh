#!/usr/bin/env bash
# aarch64.sh DIR [TESTS...]: runs the tests of the native engine, or the given ones, on an emulated AArch64 Linux. DIR is
# what tests/pyops/_machine/libraries/aarch64.sh has made; this adds the wheels that tests need (200 MB). The kernel (Linux
# 6.7 or later) is told to run AArch64's programs in a namespace alone, so that nothing outside changes. Two tests are left
# out: one measures memory that the emulator uses for each thread, the other waits for products of matrices too long.
set -euo pipefail
folder=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- tests/pyops/_core/runtime/native tests/pyops/_machine/direct tests/pyops/_machine/compiled/test_compiled_kernels.py tests/hazards
packages=$folder/root/usr/lib/python3/dist-packages
if [ ! -d "$packages/numba" ]; then
  python3 -m pip download --quiet --dest "$folder/tests_wheels" --only-binary :all: --python-version 3.11 \
    --implementation cp --abi cp311 --abi abi3 --abi none --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
    onnxruntime numpy ml_dtypes numba onnx array-api-compat scipy pytest hypothesis cloudpickle typing_extensions \
    pip hatchling typer
  for wheel in "$folder"/tests_wheels/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
fi
# Scripts of tests run elsewhere, and find the package by this path.
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1 QEMU_LD_PREFIX=$folder/root
# The beginning of an ELF file for AArch64, and which bits of it are looked at.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
export ENTRY=":aarch64:M::$magic:$mask:$(realpath "$folder/qemu-aarch64"):F"
exec unshare --user --map-root-user --mount --propagation private bash -euc '
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf "%s" "$ENTRY" > /proc/sys/fs/binfmt_misc/register
exec "$@"
' -- "$folder/root/usr/bin/python3.11" -m pytest -q -p no:cacheprovider -o addopts= -m "not stress and not exhaustive" \
  --deselect tests/hazards/test_hazards_reentry.py::test_threads_that_run_a_session_leave_no_memory \
  --deselect tests/pyops/_core/runtime/test_interrupts.py::test_an_interrupt_while_a_long_node_runs_just_before "$@"
