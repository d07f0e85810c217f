// Compiles kernels.cu for a card and starts its kernels, through the libraries that libtorch's own CUDA brings along: neither
// building nor starting the program needs them.

#include "launch.h"

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__unix__)
#include <dlfcn.h>
#endif

namespace {

constexpr int CARDS = 64;

// CUDA's driver: its handles are pointers, its devices and attributes integers.
struct Driver {
    int (*initialize)(unsigned flags);
    int (*get_device)(int *device, int ordinal);
    int (*get_attribute)(int *value, int attribute, int device);
    int (*retain_context)(void **context, int device);
    int (*set_context)(void *context);
    int (*load_module)(void **module, const void *image);
    int (*get_function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra);
};

constexpr int MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76;

// NVIDIA's compiler at run time.
struct Compiler {
    int (*create)(void **program, const char *source, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(void *program, int options, const char *const *option);
    int (*code_size)(void *program, size_t *size);
    int (*code)(void *program, char *code);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *log);
    int (*destroy)(void **program);
};

struct Card {
    bool is_loaded = false;
    void *context = nullptr;
    void *functions[pathswarm::KERNELS] = {};
    int multiprocessors = 1;
};

Driver driver;
Compiler compiler;
Card cards[CARDS];
std::mutex loading;
bool is_open = false;

void succeed(int status, const char *what) {
    if (status != 0) throw std::runtime_error(std::string(what) + ": error " + std::to_string(status));
}

#if defined(__unix__)

template <typename Function>
void find(void *library, Function &function, const char *name) {
    void *found = dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string(name) + " is not there");
    std::memcpy(&function, &found, sizeof found);
}

void open_libraries() {
    // libtorch's own, which needs both of the others and knows where they are.
    void *library = dlopen("libcaffe2_nvrtc.so", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(library, driver.initialize, "cuInit");
    find(library, driver.get_device, "cuDeviceGet");
    find(library, driver.get_attribute, "cuDeviceGetAttribute");
    find(library, driver.retain_context, "cuDevicePrimaryCtxRetain");
    find(library, driver.set_context, "cuCtxSetCurrent");
    find(library, driver.load_module, "cuModuleLoadData");
    find(library, driver.get_function, "cuModuleGetFunction");
    find(library, driver.launch, "cuLaunchKernel");
    find(library, compiler.create, "nvrtcCreateProgram");
    find(library, compiler.compile, "nvrtcCompileProgram");
    find(library, compiler.code_size, "nvrtcGetCUBINSize");
    find(library, compiler.code, "nvrtcGetCUBIN");
    find(library, compiler.log_size, "nvrtcGetProgramLogSize");
    find(library, compiler.log, "nvrtcGetProgramLog");
    find(library, compiler.destroy, "nvrtcDestroyProgram");
}

#else

void open_libraries() { throw std::runtime_error("this system has no dlopen"); }

#endif

// The machine code of the kernels for a card of this capability.
std::string compiled(const char *source, int capability) {
    std::string text = "#define SHARED_FLOATS(name, count) __shared__ float name[count]\n"
                       "#define LAUNCH_BOUNDS(threads) __launch_bounds__(threads)\n";
    text += source;
    void *program = nullptr;
    succeed(compiler.create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
    std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
    const char *options[] = {architecture.c_str()};
    size_t size = 0;
    if (compiler.compile(program, 1, options) != 0) {
        succeed(compiler.log_size(program, &size), "nvrtcGetProgramLogSize");
        std::string log(size, '\0');
        succeed(compiler.log(program, &log[0]), "nvrtcGetProgramLog");
        compiler.destroy(&program);
        throw std::runtime_error(log);
    }
    succeed(compiler.code_size(program, &size), "nvrtcGetCUBINSize");
    std::string code(size, '\0');
    succeed(compiler.code(program, &code[0]), "nvrtcGetCUBIN");
    compiler.destroy(&program);
    return code;
}

} // namespace

namespace pathswarm {

void load_on_card(int index, const char *source) {
    std::lock_guard<std::mutex> lock(loading);
    if (index < 0 || index >= CARDS) throw std::runtime_error("there is no such card");
    Card &card = cards[index];
    if (card.is_loaded) return;
    if (!is_open) open_libraries();
    is_open = true;
    succeed(driver.initialize(0), "cuInit");
    int device = 0, major = 0, minor = 0;
    succeed(driver.get_device(&device, index), "cuDeviceGet");
    succeed(driver.get_attribute(&major, MAJOR, device), "cuDeviceGetAttribute");
    succeed(driver.get_attribute(&minor, MINOR, device), "cuDeviceGetAttribute");
    succeed(driver.get_attribute(&card.multiprocessors, MULTIPROCESSORS, device), "cuDeviceGetAttribute");
    std::string code = compiled(source, 10 * major + minor);
    succeed(driver.retain_context(&card.context, device), "cuDevicePrimaryCtxRetain");
    succeed(driver.set_context(card.context), "cuCtxSetCurrent");
    void *module = nullptr;
    succeed(driver.load_module(&module, code.c_str()), "cuModuleLoadData");
    const char *names[KERNELS] = {"norm_forward", "norm_backward", "rotate",
                                  "gate_forward", "gate_backward", "softmax_gradient"};
    for (int kernel = 0; kernel < KERNELS; ++kernel) {
        succeed(driver.get_function(&card.functions[kernel], module, names[kernel]), "cuModuleGetFunction");
    }
    card.is_loaded = true;
}

void launch_on_card(int index, Kernel kernel, Grid grid, void **arguments) {
    if (index < 0 || index >= CARDS || !cards[index].is_loaded) throw std::runtime_error("the kernels are not loaded");
    const Card &card = cards[index];
    // A thread of autograd may not have used the card before.
    succeed(driver.set_context(card.context), "cuCtxSetCurrent");
    // The default stream, which libtorch uses where nobody sets another.
    succeed(driver.launch(card.functions[kernel], grid.x, grid.y, 1, grid.threads, 1, 1, 0, nullptr, arguments, nullptr),
            "cuLaunchKernel");
}

int parallel_blocks(c10::Device device) {
    if (!device.is_cuda() || device.index() < 0 || device.index() >= CARDS) return 2;
    return 8 * cards[device.index()].multiprocessors;
}

} // namespace pathswarm
