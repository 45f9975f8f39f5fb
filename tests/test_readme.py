"""What the README shows is what a reader gets."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_prints_what_the_readme_says(tmp_path):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    shown = re.search(r"<!-- output -->\n```\n(.*?)```", README, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == shown.split(), done.stdout


def test_the_example_for_other_peoples_sessions_runs(tmp_path):
    code = re.search(r"```python\n(import onnxruntime.*?)```", README, re.DOTALL)[1]
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    subprocess.run([sys.executable, "-c", example + code], cwd=tmp_path, capture_output=True, check=True)


def test_the_example_with_a_buffer_runs(tmp_path):
    code = re.search(r"```python\n(@onnx_op\(\"mylibrary::AddOne.*?)```", README, re.DOTALL)[1]
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    call = "print(add_one(np.ones(2, np.float16)))"
    command = [sys.executable, "-c", f"{example}{code}{call}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[2. 2.]\n")


def test_the_files_it_links_to_exist():
    links = [link for link in re.findall(r"\]\((.*?)\)", README) if "://" not in link and link[0] != "#"]
    assert links
    assert [link for link in links if not (Path(__file__).parents[1] / link).exists()] == []
