"""Functions in a small subset of Python, compiled to machine code by LLVM, through llvmlite.

Every value is a 64-bit word. A function consists of assignments to names, ``if``, ``for i in range(n)``, ``return`` and
calls; arithmetic is unsigned and wraps around. A function may call other such functions, those below, and C functions,
which are attributes of `c`. All functions of a module are such functions; its classes are ordinary Python.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..cache_folder import read_code, write_code


class _CFunctions:
    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):  # inspect looks up such names
            raise AttributeError(name)
        raise NotImplementedError("for compiled code")


c = _CFunctions()
"""The C functions."""


def load(address: int, index: int = 0) -> int:
    """Return the word at `index` from `address` on."""
    raise NotImplementedError("for compiled code")


def load_int(address: int, index: int = 0) -> int:
    """Return the 32-bit number in the lower half of the word at `index` from `address` on."""
    raise NotImplementedError("for compiled code")


def store(value: int, address: int, index: int = 0) -> int:
    """Write `value` to the word at `index` from `address` on, and return it."""
    raise NotImplementedError("for compiled code")


def add(value: int, address: int, index: int = 0) -> int:
    """Add `value` to the word at `index` from `address` on, and return what was there, in one step."""
    raise NotImplementedError("for compiled code")


def exchange(value: int, address: int, index: int = 0) -> int:
    """Write `value` to the word at `index` from `address` on, and return what was there, in one step."""
    raise NotImplementedError("for compiled code")


def replace(old: int, value: int, address: int, index: int = 0) -> int:
    """Write `value` to the word at `index` from `address` on if `old` is there, in one step; return whether it was."""
    raise NotImplementedError("for compiled code")


def scratch(words: int) -> int:
    """Return the address of uninitialized words (a constant number), valid until the function returns."""
    raise NotImplementedError("for compiled code")


def call(function: int, *arguments: int) -> int:
    """Call the C function at an address."""
    raise NotImplementedError("for compiled code")


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.RShift: "lshr",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.Gt: "ugt"}


class _Translator:
    """Translates a function to LLVM's assembly language.

    Parameters
    ----------
    names : mapping
        The values of global names.
    called : dict
        Collects the number of arguments of each C function that it calls.
    """

    def __init__(self, function: ast.FunctionDef, names: Mapping[str, Any], called: dict[str, int]) -> None:
        self._names, self._c_functions = names, called
        self._variables: dict[str, str] = {}
        self._head: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        parameters = [argument.arg for argument in function.args.args]
        for name in parameters:
            self._line(f"store i64 %{name}, ptr {self._variable(name)}")
        self._block(function.body)
        given = ", ".join(f"i64 %{name}" for name in parameters)
        linkage = "internal " if function.name.startswith("_") else ""
        # nounwind: when Python exits, it unwinds the stacks of daemon threads. Unwinding must not go beyond this
        # function: in ONNX Runtime's frames, it would end the process.
        head = [f"define {linkage}i64 @{function.name}({given}) nounwind {{", *self._head]
        self.text = "\n".join([*head, *self._lines, "  unreachable", "}"])

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _new(self, text: str) -> str:
        self._count += 1
        self._line(f"%.{self._count} = {text}")
        return f"%.{self._count}"

    def _label(self) -> str:
        self._count += 1
        return f".{self._count}"

    def _begin(self, label: str) -> None:
        self._line(f"br label %{label}")
        self._lines.append(f"{label}:")

    def _memory(self, words: int) -> str:
        self._count += 1
        self._head.append(f"  %.{self._count} = alloca [{words} x i64]")
        return f"%.{self._count}"

    def _variable(self, name: str) -> str:
        if name not in self._variables:
            self._variables[name] = self._memory(1)
        return self._variables[name]

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Expr(ast.Constant()):  # the docstring
                    pass
                case ast.Expr(value):
                    self._value(value)
                case ast.Assign([ast.Name(name)], value):
                    self._line(f"store i64 {self._value(value)}, ptr {self._variable(name)}")
                case ast.AugAssign(ast.Name(name) as target, operator, value):
                    changed = self._value(ast.BinOp(target, operator, value))
                    self._line(f"store i64 {changed}, ptr {self._variable(name)}")
                case ast.Return(ast.expr() as value):
                    self._line(f"ret i64 {self._value(value)}")
                    self._lines.append(f"{self._label()}:")
                case ast.If(test, body, otherwise):
                    yes, no, end = self._label(), self._label(), self._label()
                    self._branch(test, yes, no)
                    self._lines.append(f"{yes}:")
                    self._block(body)
                    self._line(f"br label %{end}")
                    self._lines.append(f"{no}:")
                    self._block(otherwise)
                    self._begin(end)
                case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [stop]), body):
                    end, counter = self._value(stop), self._variable(name)
                    again, yes, done = self._label(), self._label(), self._label()
                    self._line(f"store i64 0, ptr {counter}")
                    self._begin(again)
                    number = self._new(f"load i64, ptr {counter}")
                    more = self._new(f"icmp ult i64 {number}, {end}")
                    self._line(f"br i1 {more}, label %{yes}, label %{done}")
                    self._lines.append(f"{yes}:")
                    self._block(body)
                    # The body does not change the counter.
                    self._line(f"store i64 {self._new(f'add i64 {number}, 1')}, ptr {counter}")
                    self._line(f"br label %{again}")
                    self._lines.append(f"{done}:")
                case _:
                    raise NotImplementedError(ast.unparse(statement))

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        match test:
            case ast.BoolOp(operator, [*values, last]):
                for value in values:
                    label = self._label()
                    self._branch(value, *((label, no) if isinstance(operator, ast.And) else (yes, label)))
                    self._lines.append(f"{label}:")
                self._branch(last, yes, no)
            case ast.UnaryOp(ast.Not(), value):
                self._branch(value, no, yes)
            case ast.Compare(left, [operator], [right]):
                compared = f"{self._value(left)}, {self._value(right)}"
                condition = self._new(f"icmp {_COMPARISONS[type(operator)]} i64 {compared}")
                self._line(f"br i1 {condition}, label %{yes}, label %{no}")
            case _:
                self._branch(ast.Compare(test, [ast.NotEq()], [ast.Constant(0)]), yes, no)

    def _value(self, expression: ast.expr) -> str:
        match expression:
            case ast.Constant(int() as number):
                return str(number)
            case ast.Name(name) if name in self._variables:
                return self._new(f"load i64, ptr {self._variables[name]}")
            case ast.Name(name):
                return _signed(self._names[name])
            case ast.Attribute(ast.Name(module), name) if module != "c":
                return _signed(getattr(self._names[module], name))
            case ast.BinOp(left, operator, right):
                return self._new(f"{_OPERATORS[type(operator)]} i64 {self._value(left)}, {self._value(right)}")
            case ast.Call(ast.Name("scratch"), [words]):
                return self._new(f"ptrtoint ptr {self._memory(int(self._value(words)))} to i64")
            case ast.Call(ast.Name(name), arguments):
                return self._called(name, [self._value(argument) for argument in arguments])
            case ast.Call(ast.Attribute(ast.Name("c"), name), arguments):
                self._c_functions[name] = len(arguments)
                return self._call(f"@{name}", [self._value(argument) for argument in arguments])
        raise NotImplementedError(ast.unparse(expression))

    def _called(self, name: str, values: list[str]) -> str:
        match name, values:
            case "load", [address, *index]:
                return self._new(f"load i64, ptr {self._at(address, *index)}")
            case "load_int", [address, *index]:
                loaded = self._new(f"load i32, ptr {self._at(address, *index)}")
                return self._new(f"zext i32 {loaded} to i64")
            case "store", [value, address, *index]:
                self._line(f"store i64 {value}, ptr {self._at(address, *index)}")
                return value
            case "add", [value, address, *index]:
                return self._new(f"atomicrmw add ptr {self._at(address, *index)}, i64 {value} seq_cst")
            case "exchange", [value, address, *index]:
                return self._new(f"atomicrmw xchg ptr {self._at(address, *index)}, i64 {value} seq_cst")
            case "replace", [old, value, address, *index]:
                place = self._at(address, *index)
                pair = self._new(f"cmpxchg ptr {place}, i64 {old}, i64 {value} seq_cst seq_cst")
                return self._new(f"zext i1 {self._new(f'extractvalue {{ i64, i1 }} {pair}, 1')} to i64")
            case "call", [function, *arguments]:
                return self._call(self._at(function), arguments)
        return self._call(f"@{name}", values)

    def _at(self, address: str, index: str = "0") -> str:
        pointer = self._new(f"inttoptr i64 {address} to ptr")
        return self._new(f"getelementptr i64, ptr {pointer}, i64 {index}")

    def _call(self, function: str, arguments: Sequence[str]) -> str:
        return self._new(f"call i64 {function}({', '.join(f'i64 {argument}' for argument in arguments)})")


def _signed(word: int) -> str:
    return str((word + 2**63) % 2**64 - 2**63)


def _translate(modules: Sequence[ModuleType]) -> tuple[str, list[str]]:
    """Return the modules' functions in LLVM's assembly language, and the names of the C functions that they call."""
    called: dict[str, int] = {}
    defined = [
        _Translator(item, vars(module), called).text
        for module in modules
        for item in ast.parse(inspect.getsource(module)).body
        if isinstance(item, ast.FunctionDef)
    ]
    declared = [f"declare i64 @{name}({', '.join(['i64'] * count)})" for name, count in called.items()]
    return "\n".join([*declared, *defined]), list(called)


def compile_modules(modules: Sequence[ModuleType], c_function: Callable[[str], int]) -> dict[str, int]:
    """Compile the functions of modules, or load their code from disk; return the address of each.

    The code is never freed. Functions whose names begin with an underscore have no address.

    Parameters
    ----------
    c_function : callable
        Returns the address of a C function.
    """
    import llvmlite
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text, called = _translate(modules)
    for name in called:
        llvm.add_symbol(name, c_function(name))
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    key = hashlib.sha256(f"{llvmlite.__version__} {machine.triple} {text}".encode()).hexdigest()
    name = f"{modules[-1].__name__}-{key}.o"
    code = read_code(name)
    if code is None:
        parsed = llvm.parse_assembly(text)
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        passes.getModulePassManager().run(parsed, passes)
        code = machine.emit_object(parsed)
        write_code(name, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # arrays may live longer than modules
    # All of them now: llvmlite has a lock, which is lost where another thread sets an exception at the wrong instant.
    return {name: engine.get_function_address(name) for name in re.findall(r"define i64 @(\w+)", text)}
