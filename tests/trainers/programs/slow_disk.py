"""A slow disk for a real library: the same bytes by the same calls, at a set rate; and names that change slowly.

A save of some 20 MiB takes a local disk a few milliseconds, one of a real model takes a network file system minutes.
This makes the small one take most of a second. Content, order of files and who writes them stay the library's own: only
the Python calls that create, write, rename and remove are drawn out. Set by the environment: SLOW_MIB_PER_S (0: nothing
is slowed), SLOW_NAME_S.

safetensors writes without Python: there it is a pause after each file; a program can shard its model to have many.
"""

import builtins
import io
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SLICE = 32 << 10
RATE = float(os.environ.get("SLOW_MIB_PER_S", "0")) * 2**20
NAME_S = float(os.environ.get("SLOW_NAME_S", "0.03"))


class Paced:
    """A file that takes its time to write."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), SLICE):
            part = view[start : start + SLICE]
            self.file.write(part)
            time.sleep(len(part) / RATE)
        return len(view)

    def flush(self) -> None:
        self.file.flush()


def later(change: Callable[..., Any]) -> Callable[..., Any]:
    def change_later(*args: Any, **kwargs: Any) -> Any:
        time.sleep(NAME_S)
        return change(*args, **kwargs)

    return change_later


def slow_names() -> None:
    opened = open

    def open_slowly(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wx"):
            time.sleep(NAME_S)
        return opened(file, mode, *args, **kwargs)

    builtins.open = io.open = open_slowly  # type: ignore[assignment]
    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, later(getattr(os, name)))


def slow_torch() -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]

    save = torch.save

    def save_slowly(content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(file, io.BytesIO):
            save(content, file, *args, **kwargs)
        elif hasattr(file, "write"):
            save(content, Paced(file), *args, **kwargs)
        else:
            with open(file, "wb") as opened:  # noqa: PTH123 - a name as the library gives it
                save(content, Paced(opened), *args, **kwargs)

    torch.save = save_slowly


def slow_safetensors() -> None:
    from safetensors import torch as library  # type: ignore[import-not-found,unused-ignore]

    save = library.save_file

    def save_slowly(content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        save(content, file, *args, **kwargs)
        time.sleep(os.stat(file).st_size / RATE)  # noqa: PTH116 - a name as the library gives it

    library.save_file = save_slowly


def slow_fsspec() -> None:
    """Lightning gives fsspec its whole file at once, which moves it: across file systems that is a copy."""
    from fsspec.implementations.local import LocalFileOpener  # type: ignore[import-not-found,unused-ignore]

    LocalFileOpener.write = lambda opener, data: Paced(opener.f).write(data)


def slow_copies() -> None:
    """Copy as shutil does where the kernel cannot: by reading and writing, and slowly."""

    def copy(source: Any, target: Any, length: int = SLICE) -> None:
        while data := source.read(length):
            Paced(target).write(data)

    shutil.copyfileobj = copy
    for fast in ("_USE_CP_SENDFILE", "_USE_CP_COPY_FILE_RANGE"):
        if hasattr(shutil, fast):
            setattr(shutil, fast, False)


def slow_down() -> None:
    if not RATE:
        return
    slow_names()
    slow_copies()
    for slow in (slow_torch, slow_safetensors, slow_fsspec):
        with suppress(ImportError):
            slow()
