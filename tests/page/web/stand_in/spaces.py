"""A stand-in for the package `spaces` on ZeroGPU: a decorated call runs in a forked process, and only what can be pickled crosses."""

import multiprocessing
import pickle

FORKED = multiprocessing.get_context("fork")
ASKED: list[int] = []  # seconds that were asked for
PARENTS: list[int] = []  # processes that did the work


class GPU:
    """`spaces.GPU(duration=...)`: decorates a generator function."""

    def __init__(self, duration):
        self.duration = duration

    def __call__(self, function):
        def lent(*given):
            ASKED.append(self.duration(*given))
            sent, (here, there) = pickle.dumps(given), FORKED.Pipe()
            process = FORKED.Process(target=work, args=(function, sent, there), daemon=True)
            process.start()
            there.close()
            PARENTS.append(process.pid)
            try:
                while True:
                    kind, value = pickle.loads(here.recv_bytes())
                    if kind == "end":
                        return
                    yield value
            except EOFError:
                raise RuntimeError("GPU task aborted") from None
            finally:
                process.kill()
                process.join()
                here.close()

        return lent


def work(function, sent, there):
    for value in function(*pickle.loads(sent)):
        there.send_bytes(pickle.dumps(("value", value)))
    there.send_bytes(pickle.dumps(("end", None)))
