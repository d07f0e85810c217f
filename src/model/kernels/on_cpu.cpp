// The kernels of kernels.cu as C++, one block after another: for tests, which need no card, and to check a card. Slow.

#include "launch.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <ucontext.h>

namespace {

struct Index {
    unsigned x, y;
};

thread_local Index threadIdx, blockIdx, blockDim, gridDim;

constexpr size_t STACK_BYTES = 64 * 1024, WARP = 32;

// The threads of a block, each with a stack of its own, which take turns: one goes on until it has to wait for others.
class Block {
  public:
    Block(unsigned threads, const std::function<void()> &work)
        : work_(work), threads_(threads), stacks_(threads * STACK_BYTES) {}

    void run() {
        current = this;
        for (size_t number = 0; number < threads_.size(); ++number) {
            Thread &thread = threads_[number];
            thread.has_ended = false;
            thread.of_block = thread.of_warp = 0;
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = stacks_.data() + number * STACK_BYTES;
            thread.context.uc_stack.ss_size = STACK_BYTES;
            thread.context.uc_link = &scheduler_;
            makecontext(&thread.context, &Block::begin, 0);
        }
        for (size_t left = threads_.size(); left > 0;) {
            left = 0;
            for (size_t number = 0; number < threads_.size(); ++number) {
                if (threads_[number].has_ended) continue;
                ++left;
                running_ = number;
                threadIdx = {static_cast<unsigned>(number), 0};
                swapcontext(&scheduler_, &threads_[number].context);
            }
        }
    }

    // Waits until all threads of the block that have not ended wait as often.
    void wait_for_block() { wait(0, threads_.size(), &Thread::of_block); }

    // The value that another thread of the warp gives at the same time.
    float exchanged(float value, unsigned other) {
        size_t first = running_ / WARP * WARP, own = running_;
        threads_[own].given = value;
        wait(first, first + WARP, &Thread::of_warp);
        float found = threads_[first + ((own - first) ^ other)].given;
        wait(first, first + WARP, &Thread::of_warp);
        return found;
    }

    float shared[128];

    static thread_local Block *current;

  private:
    struct Thread {
        ucontext_t context;
        bool has_ended = false;
        // How often it has waited for its block, and for its warp.
        size_t of_block = 0, of_warp = 0;
        float given = 0;
    };

    static void begin() {
        current->work_();
        current->threads_[current->running_].has_ended = true;
    }

    void wait(size_t first, size_t end, size_t Thread::*count) {
        size_t own = running_, turn = ++(threads_[own].*count);
        auto is_behind = [&](const Thread &thread) { return !thread.has_ended && thread.*count < turn; };
        for (size_t number = first; number < end;) {
            if (!is_behind(threads_[number])) {
                ++number;
                continue;
            }
            swapcontext(&threads_[own].context, &scheduler_);
        }
    }

    const std::function<void()> &work_;
    std::vector<Thread> threads_;
    std::vector<char> stacks_;
    ucontext_t scheduler_;
    size_t running_ = 0;
};

thread_local Block *Block::current = nullptr;

void __syncthreads() { Block::current->wait_for_block(); }

float __shfl_xor_sync(unsigned, float value, int other) {
    return Block::current->exchanged(value, static_cast<unsigned>(other));
}

template <typename To, typename From>
To bits(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

unsigned __float_as_uint(float value) { return bits<unsigned>(value); }
float __uint_as_float(unsigned value) { return bits<float>(value); }
float __int_as_float(int value) { return bits<float>(value); }
float __expf(float value) { return std::exp(value); }
float rsqrtf(float value) { return 1 / std::sqrt(value); }

#define __global__
#define LAUNCH_BOUNDS(threads)
#define __device__
#define SHARED_FLOATS(name, count) float *name = Block::current->shared

namespace source {
#include "kernels.cu"
} // namespace source

template <typename... Arguments, size_t... Places>
void call(void (*kernel)(Arguments...), void **arguments, std::index_sequence<Places...>) {
    kernel(*static_cast<Arguments *>(arguments[Places])...);
}

template <typename... Arguments>
void run(void (*kernel)(Arguments...), pathswarm::Grid grid, void **arguments) {
    std::function<void()> work = [&] { call(kernel, arguments, std::index_sequence_for<Arguments...>()); };
    Block block(grid.threads, work);
    blockDim = {grid.threads, 1};
    gridDim = {grid.x, grid.y};
    for (unsigned number = 0; number < grid.x * grid.y; ++number) {
        blockIdx = {number % grid.x, number / grid.x};
        block.run();
    }
}

} // namespace

namespace pathswarm {

void run_on_cpu(Kernel kernel, Grid grid, void **arguments) {
    switch (kernel) {
    case NormForward: return run(source::norm_forward, grid, arguments);
    case NormBackward: return run(source::norm_backward, grid, arguments);
    case Rotate: return run(source::rotate, grid, arguments);
    case GateForward: return run(source::gate_forward, grid, arguments);
    case GateBackward: return run(source::gate_backward, grid, arguments);
    case SoftmaxGradient: return run(source::softmax_gradient, grid, arguments);
    case KERNELS: return;
    }
}

} // namespace pathswarm

#else

namespace pathswarm {

void run_on_cpu(Kernel, Grid, void **) { throw std::runtime_error("the kernels run on the CPU with glibc only"); }

} // namespace pathswarm

#endif
