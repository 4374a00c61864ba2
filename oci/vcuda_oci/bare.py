"""A source without what no start looks at: it is read, unpacked and run in less time.

Docstrings, annotations, what is there for the type checker alone. Lines keep their numbers, which
tracebacks name. Only for sources of ours: another's may ask for its own annotations.
"""

from __future__ import annotations

import ast


def bare(source: bytes) -> ast.Module:
    """What to compile in place of `source`."""
    tree = ast.parse(source)
    _Bare().visit(tree)
    return ast.fix_missing_locations(tree)


class _Bare(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        self.generic_visit(node)
        is_for_checker = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_checker and not node.orelse else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        # Of annotations, and there is none left.
        return None if node.module == "__future__" else node

    def _without_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        self.generic_visit(node)
        if not node.body:
            node.body = [ast.Pass()]
        return node
