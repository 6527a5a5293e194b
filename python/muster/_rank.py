"""The program of a rank of muster.run(): calls the function and stores its result.

A copy of this file is executed, so that workers need no package `muster`. A result is (True, value,
"") or (False, exception, its traceback as text).
"""
import json
import os
import pathlib
import pickle
import sys
import traceback


def main() -> None:
    folder = pathlib.Path(__file__).parent
    path = json.loads((folder / "path.json").read_text())
    sys.path[:] = path["folders"] + sys.path if path["is_first"] else sys.path + path["folders"]
    try:
        import cloudpickle as pickler  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        pickler = pickle
    result = folder / f"{os.environ['RANK']}.pickle"
    result.unlink(missing_ok=True)  # an earlier attempt's

    def store(value: "tuple[bool, object, str]") -> None:
        beside = result.with_suffix(".new")
        try:
            data = pickler.dumps(value)
            if not value[0]:
                pickle.loads(data)  # fails for exceptions whose constructor takes other arguments
        except Exception as error:
            if value[0]:
                raise TypeError(f"the result of the function cannot be pickled: {error}") from error
            data = pickle.dumps((False, None, value[2]))
        beside.write_bytes(data)
        beside.replace(result)

    try:
        function, args, kwargs = pickler.loads((folder / "call.pickle").read_bytes())
        store((True, function(*args, **kwargs), ""))
    except Exception as error:
        store((False, error, traceback.format_exc()))
        raise


if __name__ == "__main__":
    main()
