"""Files of JSON that a user gives, held against what a schema beside this package expects."""

import json
from pathlib import Path

import jsonschema

from winnow_eval import Failure

FOLDER = Path(__file__).parent.parent


def read(path, option, schema):
    """What such a file has. option: by which it was given; schema: a file's name."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{option}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"{option}: {path} is not JSON: {error}") from error
    wrong = complaint(found, schema)
    if wrong is not None:
        raise Failure(f"{option}: {path}, {wrong}")
    return found


def complaint(found, schema):
    """What is wrong and where, in words; None where nothing is."""
    expected = json.loads((FOLDER / schema).read_text(encoding="utf-8"))
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(expected).iter_errors(found))
    if error is None:
        return None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{where.lstrip('.') or 'the whole'}: {error.message} ({schema} says what is expected)"
