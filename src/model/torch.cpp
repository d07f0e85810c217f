// Operations of libtorch that tch does not offer, for src/model/fused.rs, src/model/tensor_memory and
// src/model/kernels/few_rows.rs. None needs CUDA's headers or libraries.
// Each gives null, or the message of an error, which the caller frees.

#include "kernels/reported.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace {

template <typename Work>
char *guarded(Work work) {
    c10::AutoGradMode no_gradient(false);
    return pathswarm::reported(work);
}

std::vector<at::Tensor> list(at::Tensor *const *tensors, size_t count) {
    std::vector<at::Tensor> found;
    found.reserve(count);
    for (size_t index = 0; index < count; ++index) found.push_back(*tensors[index]);
    return found;
}

#if defined(__GLIBC__)

// Bytes from which on a tensor is counted, and asks whether it fits. Smaller ones are part of the rest of the process.
constexpr size_t LARGE = 1 << 20;

// libtorch's allocator of the CPU, with a limit: a large tensor that would take the process past it is refused with the error
// of a failed allocation. Linux refuses nothing: it ends the process.
//
// Between two looks at what the system counts, the rest of the process is taken to stay as it is.
class BoundedAllocator final : public c10::Allocator {
  public:
    // `room` says how many bytes the process may still take, fewer than none if it has too many. `interval` is after how many
    // bytes of large tensors it is asked again.
    BoundedAllocator(c10::Allocator *inner, int64_t (*room)(), int64_t interval)
        : inner_(inner), room_(room), interval_(interval) {}

    c10::DataPtr allocate(size_t bytes) override {
        if (bytes >= LARGE) admit(static_cast<int64_t>(bytes));
        void *data = nullptr;
        try {
            data = inner_->raw_allocate(bytes);
        } catch (...) {
            if (bytes >= LARGE) live_ -= static_cast<int64_t>(bytes);
            throw;
        }
        size_t usable = malloc_usable_size(data);
        if (usable >= LARGE) {
            live_ += static_cast<int64_t>(usable) - static_cast<int64_t>(bytes >= LARGE ? bytes : 0);
            std::lock_guard<std::mutex> lock(blocks_lock_);
            blocks_[data] = usable;
        }
        return {data, data, &BoundedAllocator::release, c10::Device(c10::DeviceType::CPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &BoundedAllocator::release; }

    void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }

    int64_t live() const { return live_.load(); }

    // Looks at the system again.
    void measure() {
        std::lock_guard<std::mutex> lock(measure_lock_);
        look();
    }

    // Lives as long as the process, as tensors may.
    static std::atomic<BoundedAllocator *> installed;

  private:
    static void release(void *data) {
        BoundedAllocator *self = installed.load();
        size_t usable = malloc_usable_size(data);
        if (usable >= LARGE) {
            std::lock_guard<std::mutex> lock(self->blocks_lock_);
            if (self->blocks_.erase(data) > 0) self->live_ -= static_cast<int64_t>(usable);
        }
        self->inner_->raw_deallocate(data);
    }

    // Counts a tensor that is about to be allocated, or refuses it.
    void admit(int64_t bytes) {
        int64_t live = live_.fetch_add(bytes) + bytes;
        if (unmeasured_.fetch_add(bytes) + bytes > interval_) {
            unmeasured_ = 0;
            // As if every tensor but this one had been written to. What is then left is at least as much as this.
            int64_t most = room_() + live - bytes;
            int64_t known = most_.load();
            while (most < known && !most_.compare_exchange_weak(known, most)) {}
        }
        if (live <= most_.load()) return;
        std::lock_guard<std::mutex> lock(measure_lock_);
        if (fits()) return;
        // The heap keeps what is freed. From now on large blocks go back to the system, where anything can use them.
        if (!gives_back_) {
            mallopt(M_MMAP_THRESHOLD, LARGE);
            mallopt(M_TRIM_THRESHOLD, 16 * LARGE);
            gives_back_ = true;
        }
        malloc_trim(0);
        if (fits()) return;
        int64_t left = most_.load() - (live_.fetch_sub(bytes) - bytes);
        throw c10::OutOfMemoryError({__func__, "tensor_memory", 0},
                                    "out of memory: a tensor of " + std::to_string(bytes) +
                                        " bytes does not fit into what this process may still take, " +
                                        std::to_string(left > 0 ? left : 0) + " bytes");
    }

    bool fits() {
        look();
        return live_.load() <= most_.load();
    }

    // Tensors that nobody has written to are no memory yet, but will be.
    void look() {
        int64_t resident = 0;
        {
            std::lock_guard<std::mutex> lock(blocks_lock_);
            for (const auto &block : blocks_) resident += resident_bytes(block.first, block.second);
        }
        most_ = room_() + resident;
    }

    static int64_t resident_bytes(void *data, size_t bytes) {
        static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        uintptr_t begin = reinterpret_cast<uintptr_t>(data) & ~(page - 1);
        size_t length = reinterpret_cast<uintptr_t>(data) + bytes - begin;
        std::vector<unsigned char> pages((length + page - 1) / page);
        if (mincore(reinterpret_cast<void *>(begin), length, pages.data()) != 0) return static_cast<int64_t>(bytes);
        size_t found = 0;
        for (unsigned char one : pages) found += one & 1;
        return static_cast<int64_t>(found * page);
    }

    c10::Allocator *inner_;
    int64_t (*room_)();
    int64_t interval_;
    // Bytes of large tensors, with those that are about to be allocated.
    std::atomic<int64_t> live_{0};
    // Bytes that large tensors may have in all.
    std::atomic<int64_t> most_{0};
    // Bytes of large tensors since the system was last asked.
    std::atomic<int64_t> unmeasured_{0};
    std::mutex measure_lock_;
    bool gives_back_ = false;
    std::mutex blocks_lock_;
    std::unordered_map<void *, size_t> blocks_;
};

std::atomic<BoundedAllocator *> BoundedAllocator::installed{nullptr};

#endif

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

// The bytes of the tensors on a CUDA device now.
char *pathswarm_cuda_tensor_bytes(int device, int64_t *allocated) {
    return guarded([&] {
        auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
        *allocated = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
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

// Bounds the tensors of the CPU from now on, once in a process. Without glibc nothing is bounded.
char *pathswarm_bound_tensors(int64_t (*room)(), int64_t interval) {
    return guarded([&] {
#if defined(__GLIBC__)
        if (BoundedAllocator::installed.load() != nullptr) return;
        auto *bounded = new BoundedAllocator(c10::GetCPUAllocator(), room, interval);
        bounded->measure();
        BoundedAllocator::installed = bounded;
        c10::SetCPUAllocator(bounded, /*priority=*/255);
#endif
    });
}

// Asks again how much there is, if tensors are bounded.
char *pathswarm_measure_tensors() {
    return guarded([&] {
#if defined(__GLIBC__)
        if (auto *bounded = BoundedAllocator::installed.load()) bounded->measure();
#endif
    });
}

// Bytes of the tensors that are bounded: those of at least 1 MiB that were allocated since.
int64_t pathswarm_bounded_bytes() {
#if defined(__GLIBC__)
    if (auto *bounded = BoundedAllocator::installed.load()) return bounded->live();
#endif
    return 0;
}

// Whether operations of this thread are recorded for gradients.
bool pathswarm_gradients_are_recorded() { return c10::GradMode::is_enabled(); }

} // extern "C"
