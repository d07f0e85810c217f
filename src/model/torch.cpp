// Operations of libtorch that tch does not offer, for src/model/fused.rs. None needs CUDA's headers or libraries.
// Each gives null, or the message of an error, which the caller frees.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <exception>
#include <vector>

namespace {

char *copied(const char *text) {
    char *copy = strdup(text);
    if (copy == nullptr) std::terminate();
    return copy;
}

template <typename Work>
char *guarded(Work work) {
    try {
        c10::AutoGradMode no_gradient(false);
        work();
        return nullptr;
    } catch (const std::exception &error) {
        return copied(error.what());
    } catch (...) {
        return copied("an unknown error");
    }
}

std::vector<at::Tensor> list(at::Tensor *const *tensors, size_t count) {
    std::vector<at::Tensor> found;
    found.reserve(count);
    for (size_t index = 0; index < count; ++index) found.push_back(*tensors[index]);
    return found;
}

} // namespace

extern "C" {

// One step of AdamW on all tensors in as few kernels as possible. `tensors` has the parameters, then the gradients, then
// the first moments, then the second ones, `count` of each. Gradients are divided by `scale`, where it is given.
char *pathswarm_fused_adamw(at::Tensor *const *tensors, size_t count, const at::Tensor *step, const at::Tensor *scale,
                            double learning_rate, const double *betas, double weight_decay, double epsilon) {
    return guarded([&] {
        auto part = [&](size_t which) { return list(tensors + which * count, count); };
        std::vector<at::Tensor> steps(count, *step);
        std::optional<at::Tensor> divisor;
        if (scale != nullptr) divisor = *scale;
        at::_fused_adamw_(part(0), part(1), part(2), part(3), {}, steps, learning_rate, betas[0], betas[1], weight_decay,
                          epsilon, /*amsgrad=*/false, /*maximize=*/false, divisor);
    });
}

// The norm of all tensors together, a new scalar on their device.
char *pathswarm_norm(at::Tensor *const *tensors, size_t count, at::Tensor **norm) {
    return guarded([&] {
        auto norms = at::_foreach_norm(list(tensors, count));
        *norm = new at::Tensor(at::linalg_vector_norm(at::stack(norms)));
    });
}

// The most bytes that libtorch had allocated and reserved on a CUDA device; counted from now on if `reset`.
char *pathswarm_cuda_peak_bytes(int device, bool reset, int64_t *allocated, int64_t *reserved) {
    return guarded([&] {
        auto *allocator = at::getDeviceAllocator(at::kCUDA);
        if (reset) allocator->resetPeakStats(static_cast<c10::DeviceIndex>(device));
        auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device));
        auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        *allocated = stats.allocated_bytes[aggregate].peak;
        *reserved = stats.reserved_bytes[aggregate].peak;
    });
}

// Bytes of a CUDA device that are free, and all of them.
char *pathswarm_cuda_memory(int device, int64_t *free, int64_t *total) {
    return guarded([&] {
        auto found = at::getDeviceAllocator(at::kCUDA)->getMemoryInfo(static_cast<c10::DeviceIndex>(device));
        *free = static_cast<int64_t>(found.first);
        *total = static_cast<int64_t>(found.second);
    });
}

// Gives back to the device what libtorch keeps for later tensors.
char *pathswarm_cuda_empty_cache() {
    return guarded([&] { at::getDeviceAllocator(at::kCUDA)->emptyCache(); });
}

} // extern "C"
