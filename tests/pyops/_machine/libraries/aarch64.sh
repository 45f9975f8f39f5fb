#!/usr/bin/env bash
# Makes a folder with qemu's user emulator, Debian 12's Python for aarch64, and ONNX Runtime's wheel for it. Nothing is
# installed; needs Debian's apt-get and the network.
set -euo pipefail
mkdir -p "$1"
cd "$1"
mkdir -p apt/lists/partial apt/cache/archives/partial debs root/proc root/sys/devices/system/cpu site
touch apt/status
own=(-o Dir::State::Lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" -o Dir::State::status="$PWD/apt/status")
arm=("${own[@]}" -o APT::Architecture=arm64 -o APT::Architectures=arm64)
python=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
(
  cd debs
  apt-get download -qq qemu-user-static
  apt-get "${arm[@]}" update -qq
  apt-get "${arm[@]}" download -qq "${python[@]}" libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5
)
for package in debs/*_arm64.deb; do dpkg -x "$package" root; done
dpkg -x debs/qemu-user-static_*.deb qemu
ln -sf qemu/usr/bin/qemu-aarch64-static qemu-aarch64
# ONNX Runtime looks up the CPU, and must not find this machine's.
for cpu in 0 1; do
  printf 'processor\t: %s\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\n' "$cpu"
done > root/proc/cpuinfo
for file in possible present online; do echo 0-1 > "root/sys/devices/system/cpu/$file"; done
python3 -m pip download --quiet --no-deps --dest wheels --only-binary :all: --python-version 3.11 \
  --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 onnxruntime numpy
for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" site; done
