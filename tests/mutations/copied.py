"""A copy of the repository in which mistakes are planted and tests run. Knows no table and prints nothing.

Importing PyTorch and its kin takes most of a short test's time. One process imports them once, and each run of tests is a fork of it.
It never imports the engine, so every run reads the copy as it is then. Compiled kernels are kept across runs, and with a mistake
those serve that the mistaken file plays no part in.
"""

import ast
import compileall
import gc
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.imports import module_arrows, modules_of
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
LONGEST = 600  # seconds of a run; kernels are compiled anew in some
WARM = (
    "pytest",
    "pytest_cov.plugin",
    "hypothesis",
    "torch",
    "numba",
    "playwright.sync_api",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.generation.utils",
)
OF_THE_PAGE = "gradio", "gradio_client"  # what tests of mistakes in the page import too
OPTIONS = "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "pytest_cov.plugin"
FAILED = 1  # what pytest returns when a test failed; 2 and more is a run that did not come to its tests


class Copy:
    """The repository in `folder`, without what is built and ignored. Assets are read only, so a link to them does.

    A folder that holds an earlier copy is brought up to date, and its compiled kernels serve again. The `files` are written as their
    syntax trees are, so that a planted mistake is the only difference.
    """

    def __init__(self, folder: Path, files: Iterable[str]):
        self.folder, self.output = folder, folder / "output"
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        for name in ("engine", "tests"):
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for name in (".pytest.ini", ".coveragerc", "app.py", "README.md", "Spaces.md"):
            shutil.copy2(ROOT / name, folder / name)
        (folder / "assets").unlink(missing_ok=True)
        (folder / "assets").symlink_to(ROOT / "assets")
        files = {*files}
        for file in files:
            self.write(file, ast.unparse(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
            shutil.copystat(ROOT / file, folder / file)  # kept kernels are known by it
        compileall.compile_dir(folder, quiet=2)
        os.environ |= {
            "NUMBA_CACHE_DIR": str(folder / "compiled"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # one of them imports for two seconds
        }
        self.forks = multiprocessing.get_context("forkserver")
        page = any("page" in Path(file).parts for file in files)
        self.forks.set_forkserver_preload([*WARM, *(OF_THE_PAGE if page else ())])

    def write(self, file: str, source: str) -> None:
        (self.folder / file).write_text(source, encoding="utf-8")

    def tested(self, tests: str) -> tuple[int, str]:
        """pytest's exit status and the last line that it wrote. A run ends at its first failure."""
        run = self.forks.Process(target=run_tests, args=(self.folder, self.output, tests))
        run.start()
        try:
            run.join(LONGEST)
        finally:
            if late := run.exitcode is None:
                os.killpg(run.pid, signal.SIGKILL)  # and whatever it has started
                run.join()
        if late:
            return -1, f"nothing after {LONGEST} s"
        lines = self.output.read_text(encoding="utf-8", errors="replace").split("\n")
        return run.exitcode, next(filter(None, reversed(lines)), "")

    def planted(self, mutation: Mutation) -> tuple[int, str]:
        """What the mutation's tests say with the mistake in place. The file is as before afterwards."""
        path, kernels = self.folder / mutation.file, self.kernels()
        right, stamp = path.read_text(encoding="utf-8"), path.stat()
        self.write(mutation.file, mutation.planted(right))
        wrong = self.kernels()
        if wrong != kernels and kernels.exists():
            files = self.importing(mutation.file)
            shutil.copytree(
                kernels,
                wrong,
                copy_function=os.link,
                ignore=lambda _, names: [name for name in names if name.partition(".")[0] in files],
            )
        try:
            return self.tested(mutation.test)
        finally:
            self.write(mutation.file, right)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            if wrong != kernels:
                shutil.rmtree(wrong, ignore_errors=True)

    def kernels(self) -> Path:
        """Where compiled kernels of the copy as it is now are kept."""
        from engine.kernels.code_folder import (
            find_code_folder_and_remove_old,  # here alone, for runs import the copy's engine
        )

        return find_code_folder_and_remove_old(self.folder / "engine", str(self.folder / "compiled"))

    def importing(self, file: str) -> set[str]:
        """The names, without folders and suffix, of all files that import this one or a file that does, and its own."""
        arrows = module_arrows(modules_of(self.folder, "engine"))
        found, more = set(), {".".join(Path(file).with_suffix("").parts)}
        while more:
            found |= more
            more = {module for module, others in arrows.items() if others & found} - found
        return {module.rpartition(".")[2] for module in found}


def run_tests(folder: Path, output: Path, tests: str) -> None:
    """Run pytest in the folder, in a process of its own whose output goes to a file, and leave with pytest's status."""
    import pytest

    os.setsid()
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:] = [each for each in sys.path if each and Path(each) != ROOT]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the copy has its own
    gc.freeze()  # pytest collects garbage at its end, and need not look through all of PyTorch
    sys.exit(pytest.main([*OPTIONS, *shlex.split(tests)]))
