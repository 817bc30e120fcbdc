"""What launches, waits and allocations cost in CuPy or PyTorch: peers of "fairlead bench cuda".

    peers.py NAME IMAGE SCALE    NAME is cupy or torch, IMAGE a file with PTX of the kernels nop and
                                 spin, SCALE divides the numbers of rounds

Prints a line "samples NAME NANOS..." for each figure, as baseline.c does. Exits with 69 where the
library is not installed, or finds no GPU.
"""

import sys
import time

BATCH = 200
ALLOCATED_BYTES = 4096
WARM_UP_SECONDS = 1.0
SPIN = """
extern "C" __global__ void nop() {}
extern "C" __global__ void spin(int nanos) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanos);
}
"""


class CuPy:
    def __init__(self, image):
        import cupy
        import numpy

        self.cupy = cupy
        self.wide = numpy.uint64
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        module = cupy.RawModule(path=image)
        self.nop = module.get_function("nop")
        self.spin = module.get_function("spin")

    def launches(self, nanos):
        """The ways to launch a kernel that takes so long."""
        if nanos == 0:
            return [lambda: self.nop((1,), (1,), ())]
        arguments = (self.wide(nanos),)
        return [lambda: self.spin((1,), (1,), arguments)]

    def synchronize(self):
        self.stream.synchronize()

    def allocate(self):
        self.cupy.cuda.alloc(ALLOCATED_BYTES)


class Torch:
    """Loads no PTX: it compiles the same kernels, and has a sleep of its own, which counts the clock.

    Launches of what it compiles go through Python, those of its sleep do not."""

    def __init__(self, image):
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise ImportError("PyTorch finds no GPU")
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.compiled = []
        try:
            self.compiled = [torch.cuda._compile_kernel(SPIN, name) for name in ("nop", "spin")]
        except Exception as refused:  # a private call, whose needs change
            print("peers.py: PyTorch compiles no kernel: %s" % refused, file=sys.stderr)

    def launches(self, nanos):
        cycles = int(nanos * self.cycles_per_nano())
        ways = [lambda: self.torch.cuda._sleep(cycles)]
        if self.compiled:
            kernel = self.compiled[0 if nanos == 0 else 1]
            arguments = [nanos] if nanos else []
            ways.append(lambda: kernel(grid=(1, 1, 1), block=(1, 1, 1), args=arguments))
        return ways

    def cycles_per_nano(self):
        cycles = 50_000_000
        start = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        for _ in range(2):  # the first brings the clock up
            start.record()
            self.torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
        return cycles / (start.elapsed_time(end) * 1e6)

    def synchronize(self):
        self.stream.synchronize()

    def allocate(self):
        self.torch.empty(ALLOCATED_BYTES, dtype=self.torch.uint8, device="cuda")


def waits(library, nanos, rounds, scale):
    """Of several ways to launch, the one that is fastest at the median."""
    best = None
    for launch in library.launches(nanos):
        end = time.perf_counter() + WARM_UP_SECONDS / scale
        while time.perf_counter() < end:
            launch()
            library.synchronize()
        samples = []
        for _ in range(rounds):
            start = time.perf_counter_ns()
            launch()
            library.synchronize()
            samples.append(time.perf_counter_ns() - start)
        if best is None or sorted(samples)[rounds // 2] < sorted(best)[rounds // 2]:
            best = samples
    return best


def allocations(library, rounds, scale):
    def batch():
        start = time.perf_counter_ns()
        for _ in range(BATCH):
            library.allocate()
        each = (time.perf_counter_ns() - start) / BATCH
        library.synchronize()
        return each

    end = time.perf_counter() + WARM_UP_SECONDS / scale
    while time.perf_counter() < end:
        batch()
    return [batch() for _ in range(rounds)]


def show(name, samples):
    print("samples", name, *("%.6g" % each for each in samples), flush=True)


def main(words):
    if len(words) != 3 or words[0] not in ("cupy", "torch"):
        sys.exit("usage: peers.py cupy|torch IMAGE SCALE")
    name, image, scale = words[0], words[1], max(1, int(words[2]))
    try:
        library = CuPy(image) if name == "cupy" else Torch(image)
    except ImportError as missing:
        print("peers.py: %s" % missing, file=sys.stderr)
        sys.exit(69)
    show("wait.0", waits(library, 0, max(5, 4000 // scale), scale))
    show("wait.20", waits(library, 20_000, max(5, 3000 // scale), scale))
    show("alloc", allocations(library, max(5, 300 // scale), scale))


if __name__ == "__main__":
    main(sys.argv[1:])
