"""Words that stand in the source beside what they are about: the texts below the attributes of a class."""

import ast
import inspect


def attribute_texts(kind: type) -> dict[str, str]:
    """The text below each attribute of a class, as one line of Markdown."""
    (record,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(record, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(record.body, record.body[1:], strict=False):
        name = _name(before)
        if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[name] = " ".join(str(after.value.value).replace("``", "`").split())
    return found


def _name(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""
