// Runs the kernels of a .cu file on a processor, for tests where there is no GPU:
//   g++ -std=c++17 -O2 -ffp-contract=off -shared -fPIC -DKERNELS='"solver.cu"'
//       -DENTRIES='ENTRY(apply), ENTRY(dots)' emulated-gpu.cpp
//
// A block's threads are fibers that run one after the other up to the next barrier, in ascending or
// descending order: a missing barrier gives wrong sums in one of the orders. A barrier that some
// threads do not reach, or that they reach at different places, fails the launch. Blocks of one
// launch may run in several host threads at once; shared memory and fibers are per host thread.

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

// --- what CUDA has and C++ has not --------------------------------------------------------------

struct Dim {
  unsigned x;
};

static thread_local Dim threadIdx, blockIdx, blockDim, gridDim;

static void barrier(int line);

[[noreturn]] static inline void trap() { throw std::runtime_error("trap"); }

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(threads)
#define __syncthreads() barrier(__LINE__)
#define __trap() trap()
#define __ldg(address) (*(address))

// Blocks may run at once, so these are atomic here too.
static inline int atomicAdd(int *target, int value) {
  return __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
}

static inline unsigned long long atomicAdd(unsigned long long *target, unsigned long long value) {
  return __atomic_fetch_add(target, value, __ATOMIC_RELAXED);
}

static inline unsigned long long atomicCAS(
    unsigned long long *target, unsigned long long expected, unsigned long long value) {
  __atomic_compare_exchange_n(
      target, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

#include KERNELS

// --- fibers -------------------------------------------------------------------------------------

namespace {

// Much more than any kernel of the solver has on its stack.
constexpr size_t STACK = 64 * 1024;

using Body = void (*)(void **arguments);

struct Fiber {
  std::unique_ptr<char[]> stack{new char[STACK]};
  ucontext_t start;
  jmp_buf at;
  bool begun = false;
  bool done = true;
};

struct Block {
  Body body;
  void **arguments;
  std::string fault;
  int line; // of the barrier that threads wait at; 0: none does
};

thread_local std::vector<Fiber> fibers;
thread_local Fiber *running;
thread_local Block *block;
thread_local jmp_buf scheduler;

void suspend() {
  if (_setjmp(running->at) == 0) {
    _longjmp(scheduler, 1);
  }
}

// A fiber is used again for the same thread of the next block: making one costs a system call.
void live() {
  while (true) {
    try {
      block->body(block->arguments);
    } catch (const std::exception &fault) {
      block->fault = fault.what();
    }
    running->done = true;
    suspend();
  }
}

void resume(Fiber &fiber) {
  running = &fiber;
  if (_setjmp(scheduler) != 0) {
    return;
  }
  if (fiber.begun) {
    _longjmp(fiber.at, 1);
  }
  fiber.begun = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.start.uc_stack.ss_size = STACK;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, live, 0);
  setcontext(&fiber.start);
}

// One phase: every thread up to its next barrier, or its end. Returns how many wait at one.
unsigned phase(unsigned threads, bool descending) {
  unsigned waiting = 0;
  block->line = 0;
  for (unsigned k = 0; k < threads && block->fault.empty(); k++) {
    threadIdx.x = descending ? threads - 1 - k : k;
    Fiber &fiber = fibers[threadIdx.x];
    if (!fiber.done) {
      resume(fiber);
      waiting += fiber.done ? 0 : 1;
    }
  }
  return waiting;
}

void run(Block &next, unsigned threads, bool descending) {
  block = &next;
  while (fibers.size() < threads) {
    fibers.emplace_back();
  }
  for (unsigned t = 0; t < threads; t++) {
    fibers[t].done = false;
  }
  unsigned live = threads;
  while (live > 0 && next.fault.empty()) {
    unsigned waiting = phase(threads, descending);
    if (next.fault.empty() && waiting != 0 && waiting != live) {
      next.fault = "some threads ended while others wait at a barrier";
    }
    live = waiting;
  }
  if (!next.fault.empty()) {
    fibers.clear(); // those in the midst of a body can only be forgotten
  }
}

// --- kernels by name ----------------------------------------------------------------------------

template <class T>
const char *nameOf() {
  using Item = std::remove_cv_t<std::remove_pointer_t<T>>;
  if (std::is_same<Item, double>::value) return "F64";
  if (std::is_same<Item, int>::value) return "I32";
  if (std::is_same<Item, signed char>::value) return "I8";
  if (std::is_same<Item, long long>::value) return "I64";
  return "unknown";
}

template <class T>
std::string declared() {
  if (!std::is_pointer<T>::value) return nameOf<T>();
  bool read = std::is_const<std::remove_pointer_t<T>>::value;
  return std::string(read ? "in(" : "out(") + nameOf<T>() + ")";
}

template <auto kernel>
struct Call;

template <class... A, void (*kernel)(A...)>
struct Call<kernel> {
  template <size_t... I>
  static void with(void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A> *>(arguments[I])...);
  }

  static void body(void **arguments) { with(arguments, std::index_sequence_for<A...>()); }

  static std::string signature() {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + declared<A>()), ...);
    return all;
  }
};

struct Entry {
  const char *name;
  Body body;
  std::string signature;
};

#define ENTRY(kernel) {#kernel, Call<kernel>::body, Call<kernel>::signature()}

const Entry KERNEL_TABLE[] = {ENTRIES};

const Entry *find(const char *name) {
  for (const Entry &entry : KERNEL_TABLE) {
    if (std::strcmp(entry.name, name) == 0) {
      return &entry;
    }
  }
  return nullptr;
}

} // namespace

static void barrier(int line) {
  if (block->line != 0 && block->line != line) {
    throw std::runtime_error(
        "threads of a block wait at different barriers, lines " + std::to_string(block->line) +
        " and " + std::to_string(line));
  }
  block->line = line;
  unsigned me = threadIdx.x;
  suspend();
  threadIdx.x = me;
}

// The parameters of a kernel, "in(F64), out(F64), I32"; null if there is no such kernel.
extern "C" const char *emulated_signature(const char *name) {
  const Entry *entry = find(name);
  return entry == nullptr ? nullptr : entry->signature.c_str();
}

// Runs the blocks `first` to `end` (exclusive) of a launch of `blocks`. Returns null, or what went
// wrong, which is valid until the thread's next call.
extern "C" const char *emulated_launch(
    const char *name, unsigned blocks, unsigned threads, unsigned first, unsigned end,
    int descending, void **arguments) {
  static thread_local std::string fault;
  const Entry *entry = find(name);
  if (entry == nullptr || threads == 0 || threads > MOST_THREADS) {
    fault = std::string(name) + ": no such kernel, or too many threads in a block";
    return fault.c_str();
  }
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned at = first; at < end; at++) {
    blockIdx.x = descending ? first + (end - 1 - at) : at;
    Block next{entry->body, arguments, "", 0};
    run(next, threads, descending != 0);
    if (!next.fault.empty()) {
      fault = std::string(name) + ": " + next.fault;
      return fault.c_str();
    }
  }
  return nullptr;
}
