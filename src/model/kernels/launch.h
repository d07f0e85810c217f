// Starts the kernels of kernels.cu: on a card (cuda.cpp), or in threads of the CPU (on_cpu.cpp).

#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace pathswarm {

enum Kernel { NormForward, NormBackward, Rotate, GateForward, GateBackward, SoftmaxGradient, KERNELS };

// Blocks in two dimensions, and the threads of each, a multiple of 32.
struct Grid {
    unsigned x, y, threads;
};

// The heads of tokens, as in kernels.cu.
struct Heads {
    void *values;
    long long sequence, token, head;
    int heads;
};

struct Parts {
    Heads parts[3];
};

// Compiles the kernels for a card, once. Throws with the reason if it cannot be done.
void load_on_card(int device, const char *source);

// Throws if the kernel cannot be started. `arguments` points to each argument.
void launch_on_card(int device, Kernel kernel, Grid grid, void **arguments);
void run_on_cpu(Kernel kernel, Grid grid, void **arguments);

// How many blocks a device computes at once, about.
int parallel_blocks(c10::Device device);

// How often this thread has started each kernel.
extern thread_local int64_t launches[KERNELS];

// Every argument by its address, in the order and the types of the kernel.
template <typename... Arguments>
void launch(c10::Device device, Kernel kernel, Grid grid, Arguments... values) {
    void *arguments[] = {static_cast<void *>(&values)...};
    if (grid.x == 0 || grid.y == 0) return;
    ++launches[kernel];
    if (device.is_cuda()) {
        launch_on_card(device.index(), kernel, grid, arguments);
    } else {
        run_on_cpu(kernel, grid, arguments);
    }
}

} // namespace pathswarm
