"""Where compiled code is kept: a folder for each state of the sources. Imports no compiler."""

import hashlib
import re
import shutil
from pathlib import Path

MARKS = re.compile(rb"@(exactly_)?compiled|@intrinsic|@overload")  # a file with one has code to compile


def find_code_folder_and_remove_old(package: Path, parent_folder: str | None = None) -> Path:
    """A folder for the package's compiled code: in the folder `parent_folder`, else in the package's own `__pycache__`.

    Its name changes with every source that is compiled: files with one of `MARKS`, and all of `kernels`, whose constants and types
    are compiled too. numba by itself sees a function's own file alone. Folders of earlier code are removed, but not from a
    `parent_folder` folder, which may hold other checkouts' code.
    """
    own, digest = package / "__pycache__", hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if path.parent == package / "kernels" or MARKS.search(source):
            digest.update(f"{path.relative_to(package).as_posix()} {len(source)} ".encode() + source)
    folder = Path(parent_folder or own) / f"treerace-{digest.hexdigest()}"
    if not parent_folder:
        for earlier in set(own.glob("treerace-*")) - {folder}:
            shutil.rmtree(earlier, ignore_errors=True)
    return folder
