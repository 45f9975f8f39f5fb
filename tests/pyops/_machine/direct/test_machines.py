"""The machine code of direct calls for each system, as far as a file shows whether it would run there."""

import re

import pytest

from pyops._machine.direct import loaded_code

llvm = pytest.importorskip("llvmlite.binding")
llvm_code = pytest.importorskip("pyops._machine.direct.llvm_code")

# What LLVM calls by itself, and every C library has.
OF_C = {"memset", "memcpy", "memmove", "bzero"}
MOST_IN_REGISTERS = 8  # arguments of a function on AArch64; macOS packs further ones in its own way


@pytest.mark.parametrize(
    "triple",
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-pc-windows-msvc", "arm64-apple-macosx14.0.0"],
)
def test_it_calls_only_what_is_there_and_needs_no_stack_probe(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text, called = llvm_code._translate(loaded_code.MODULES)
    machine = llvm.Target.from_triple(triple).create_target_machine(jit=True)
    parsed = llvm.parse_assembly(text)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(parsed, passes)
    defined = {function.name for function in parsed.functions if not function.is_declaration}
    code = machine.emit_assembly(parsed)
    named = set(re.findall(r"\b_?((?:Py|mem|bzero|_*chkstk)\w*)\b", code)) - defined
    assert "PyObject_Vectorcall" in named
    assert named <= {*called, *OF_C}
    assert len(machine.emit_object(llvm.parse_assembly(text))) > 1000


def test_its_functions_take_their_arguments_in_registers_and_none_is_variadic() -> None:
    text, called = llvm_code._translate(loaded_code.MODULES)
    declared = dict(re.findall(r"^declare i64 @(\w+)\((.*)\)$", text, re.MULTILINE))
    assert declared.keys() == set(called)
    assert "..." not in text
    assert max(len(parameters.split(", ")) for parameters in declared.values()) <= MOST_IN_REGISTERS
