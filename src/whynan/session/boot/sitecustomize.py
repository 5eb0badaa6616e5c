"""What Python loads before the program that ``whynan run`` starts; it takes every trace of itself away again."""

import sys


def _attend() -> None:
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    told = os.environ.pop("_WHYNAN_RUN", None)
    status = os.environ.pop("_WHYNAN_STATUS", "")
    again = os.environ.pop("_WHYNAN_AGAIN", None)
    hashed = os.environ.pop("_WHYNAN_HASHSEED", None)
    before = os.environ.pop("_WHYNAN_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    if hashed:
        os.environ["PYTHONHASHSEED"] = hashed
    elif hashed is not None:
        os.environ.pop("PYTHONHASHSEED", None)
    sys.path_importer_cache.pop(here, None)
    if told is None:
        return
    try:
        root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
        try:
            from whynan.session.attending import attend
        except ImportError:
            # found from the working directory, which is not the program's
            sys.path.append(root)
            try:
                from whynan.session.attending import attend
            finally:
                sys.path.remove(root)
        attend(told, status, again=again)
    except Exception as error:
        sys.stderr.write(f"whynan: the program runs unwatched, because whynan cannot start ({error!r})\n")


def _theirs() -> None:
    """Load the ``sitecustomize`` that Python would have loaded instead, if there is one."""
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")


_attend()
_theirs()
