// What mod.rs offers, with gradients: each function prepares the tensors of a kernel, forward and backward.
// Each gives null, or the message of an error, which the caller frees.

#include "launch.h"
#include "reported.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

namespace pathswarm {

thread_local int64_t launches[KERNELS] = {};

} // namespace pathswarm

namespace {

using at::Tensor;
using pathswarm::Grid;
using pathswarm::Heads;
using pathswarm::Parts;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

unsigned warps_for(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename Value>
Value *values(const Tensor &tensor) {
    return tensor.defined() ? static_cast<Value *>(tensor.data_ptr()) : nullptr;
}

// The same values one after another from where vector loads can begin. Parameters of a level are parts of one tensor.
Tensor aligned(const Tensor &tensor) {
    if (!tensor.defined()) return tensor;
    Tensor whole = tensor.contiguous();
    return reinterpret_cast<uintptr_t>(whole.data_ptr()) % 16 == 0 ? whole : whole.clone();
}

struct NormFunction : Function<NormFunction> {
    static variable_list forward(AutogradContext *context, const Tensor &stream, const std::optional<Tensor> &addend,
                                 const Tensor &weight, const std::optional<Tensor> &shift, double epsilon,
                                 bool centred) {
        context->set_materialize_grads(false);
        Tensor added = addend.value_or(Tensor()), bias = shift.value_or(Tensor());
        int width = static_cast<int>(stream.size(-1));
        long long rows = stream.numel() / width;
        Tensor in = aligned(stream), more = aligned(added), scale = aligned(weight);
        Tensor sum = added.defined() ? at::empty_like(in) : stream;
        Tensor normed = at::empty(stream.sizes(), stream.options().dtype(at::kBFloat16));
        Tensor statistics = at::empty({rows, 2}, stream.options());
        constexpr unsigned WARPS = 8;
        Grid grid{static_cast<unsigned>((rows + WARPS - 1) / WARPS), 1, 32 * WARPS};
        pathswarm::launch(stream.device(), pathswarm::NormForward, grid, values<float>(in), values<void>(more),
                          values<float>(scale), values<float>(bias), added.defined() ? values<float>(sum) : nullptr,
                          values<void>(normed), values<float>(statistics), rows, width, static_cast<float>(epsilon),
                          static_cast<int>(centred));
        context->save_for_backward({added.defined() ? sum : in, statistics, weight, bias});
        context->saved_data["centred"] = centred;
        context->saved_data["has_added"] = added.defined();
        return {sum, normed};
    }

    static variable_list backward(AutogradContext *context, variable_list gradients) {
        auto saved = context->get_saved_variables();
        const Tensor &sum = saved[0], &statistics = saved[1], &weight = saved[2], &bias = saved[3];
        bool has_added = context->saved_data["has_added"].toBool();
        variable_list found(6);
        if (!gradients[1].defined()) {
            found[0] = gradients[0];
            if (has_added && gradients[0].defined()) found[1] = gradients[0].to(at::kBFloat16);
            return found;
        }
        int width = static_cast<int>(sum.size(-1));
        long long rows = sum.numel() / width;
        Tensor by_normed = aligned(gradients[1]), by_sum = aligned(gradients[0]), scale = aligned(weight);
        Tensor by_stream = at::empty(sum.sizes(), sum.options());
        Tensor by_added = has_added ? at::empty(sum.sizes(), sum.options().dtype(at::kBFloat16)) : Tensor();
        long long blocks = std::min<long long>(rows, pathswarm::parallel_blocks(sum.device()));
        auto of_blocks = [&](const Tensor &parameter) {
            bool is_trained = parameter.defined() && parameter.requires_grad();
            return is_trained ? at::empty({blocks, width}, sum.options()) : Tensor();
        };
        Tensor by_weight = of_blocks(weight), by_bias = of_blocks(bias);
        Grid grid{static_cast<unsigned>(blocks), 1, warps_for(width / 4)};
        pathswarm::launch(sum.device(), pathswarm::NormBackward, grid, values<void>(by_normed), values<float>(by_sum),
                          values<float>(sum), values<float>(statistics), values<float>(scale),
                          values<float>(by_stream), values<void>(by_added), values<float>(by_weight),
                          values<float>(by_bias), rows, width, static_cast<int>(context->saved_data["centred"].toBool()));
        found[0] = by_stream;
        found[1] = by_added;
        if (by_weight.defined()) found[2] = at::sum(by_weight, 0);
        if (by_bias.defined()) found[3] = at::sum(by_bias, 0);
        return found;
    }
};

// The heads of a tensor `[sequences, time, heads, width]`, whose last dimension is contiguous.
Heads heads_of(const Tensor &tensor) {
    return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2), static_cast<int>(tensor.size(2))};
}

// Starts the rotation of queries, keys and values.
void rotate(const Tensor (&from)[3], const Tensor (&to)[3], const Tensor &rotation, int64_t rotated, float direction) {
    Parts in, out;
    for (int part = 0; part < 3; ++part) {
        in.parts[part] = heads_of(from[part]);
        out.parts[part] = heads_of(to[part]);
    }
    int time = static_cast<int>(from[0].size(1)), width = static_cast<int>(from[0].size(3));
    int turned = in.parts[0].heads + in.parts[1].heads, all = turned + in.parts[2].heads;
    Grid grid{static_cast<unsigned>(from[0].size(0) * time), 1,
              static_cast<unsigned>(std::min<int64_t>(256, warps_for(all * width / 8)))};
    pathswarm::launch(from[0].device(), pathswarm::Rotate, grid, in, out, values<float>(rotation), time, turned, width,
                      static_cast<int>(rotated), direction);
}

struct RotateFunction : Function<RotateFunction> {
    static variable_list forward(AutogradContext *context, const Tensor &stacked, const Tensor &rotation, int64_t heads,
                                 int64_t kv_heads, int64_t head_width, int64_t rotated) {
        context->set_materialize_grads(false);
        int64_t sequences = stacked.size(0), time = stacked.size(1), all = heads + 2 * kv_heads;
        Tensor angles = at::view_as_real(rotation).contiguous();
        TORCH_CHECK(angles.numel() == time * rotated, "rotations of other sequences");
        Tensor in = aligned(stacked).view({sequences, time, all, head_width});
        auto fresh = [&](int64_t number) { return at::empty({sequences, time, number, head_width}, in.options()); };
        Tensor to[3] = {fresh(heads), fresh(kv_heads), fresh(kv_heads)};
        rotate({in.narrow(2, 0, heads), in.narrow(2, heads, kv_heads), in.narrow(2, heads + kv_heads, kv_heads)}, to,
               angles, rotated, 1);
        context->save_for_backward({angles});
        context->saved_data["rotated"] = rotated;
        context->saved_data["heads"] = at::IntArrayRef({sequences, time, heads, kv_heads, head_width}).vec();
        return {to[0], to[1], to[2]};
    }

    static variable_list backward(AutogradContext *context, variable_list gradients) {
        Tensor angles = context->get_saved_variables()[0];
        auto sizes = context->saved_data["heads"].toIntVector();
        int64_t sequences = sizes[0], time = sizes[1], heads = sizes[2], kv_heads = sizes[3], head_width = sizes[4];
        int64_t numbers[3] = {heads, kv_heads, kv_heads};
        auto some = std::find_if(gradients.begin(), gradients.end(), [](const Tensor &one) { return one.defined(); });
        if (some == gradients.end()) return variable_list(6);
        Tensor from[3];
        for (int part = 0; part < 3; ++part) {
            Tensor &own = gradients[part];
            bool fits = own.defined() && own.stride(3) == 1 && own.stride(0) % 8 == 0 && own.stride(1) % 8 == 0 &&
                        own.stride(2) % 8 == 0 && reinterpret_cast<uintptr_t>(own.data_ptr()) % 16 == 0;
            from[part] = fits            ? own
                         : own.defined() ? aligned(own)
                                         : at::zeros({sequences, time, numbers[part], head_width}, some->options());
        }
        Tensor by = at::empty({sequences, time, heads + 2 * kv_heads, head_width}, some->options());
        rotate(from, {by.narrow(2, 0, heads), by.narrow(2, heads, kv_heads), by.narrow(2, heads + kv_heads, kv_heads)},
               angles, context->saved_data["rotated"].toInt(), -1);
        variable_list found(6);
        found[0] = by.view({sequences, time, (heads + 2 * kv_heads) * head_width});
        return found;
    }
};

struct GateFunction : Function<GateFunction> {
    static Grid grid(const Tensor &hidden) {
        constexpr unsigned THREADS = 128;
        int64_t width = hidden.size(-1) / 2;
        return {static_cast<unsigned>(hidden.numel() / (2 * width)),
                static_cast<unsigned>((width / 8 + THREADS - 1) / THREADS), THREADS};
    }

    static Tensor forward(AutogradContext *context, const Tensor &stacked, int64_t activation) {
        Tensor hidden = aligned(stacked);
        auto shape = hidden.sizes().vec();
        shape.back() /= 2;
        Tensor out = at::empty(shape, hidden.options());
        pathswarm::launch(hidden.device(), pathswarm::GateForward, grid(hidden), values<void>(hidden), values<void>(out),
                          static_cast<int>(shape.back()), static_cast<int>(activation));
        context->save_for_backward({hidden});
        context->saved_data["activation"] = activation;
        return out;
    }

    static variable_list backward(AutogradContext *context, variable_list gradients) {
        Tensor hidden = context->get_saved_variables()[0], by_out = aligned(gradients[0]);
        Tensor by_hidden = at::empty_like(hidden);
        pathswarm::launch(hidden.device(), pathswarm::GateBackward, grid(hidden), values<void>(by_out),
                          values<void>(hidden), values<void>(by_hidden), static_cast<int>(hidden.size(-1) / 2),
                          static_cast<int>(context->saved_data["activation"].toInt()));
        return {by_hidden, Tensor()};
    }
};

std::optional<Tensor> or_none(const Tensor *tensor) {
    return tensor == nullptr ? std::nullopt : std::optional<Tensor>(*tensor);
}

} // namespace

extern "C" {

// Compiles the kernels for a card.
char *pathswarm_load_kernels(int device, const char *source) {
    return pathswarm::reported([&] { pathswarm::load_on_card(device, source); });
}

// `stream + added`, f32, and its norm in bfloat16, as new tensors.
char *pathswarm_norm_narrow(const Tensor *stream, const Tensor *added, const Tensor *weight, const Tensor *bias,
                            double epsilon, bool centred, Tensor **sum, Tensor **normed) {
    return pathswarm::reported([&] {
        auto found = NormFunction::apply(*stream, or_none(added), *weight, or_none(bias), epsilon, centred);
        *sum = new Tensor(found[0]);
        *normed = new Tensor(found[1]);
    });
}

// Queries, keys and values of `stacked`, `[sequences, time, (heads + 2 kv_heads) head]`, as new tensors in `found`.
char *pathswarm_rotate(const Tensor *stacked, const Tensor *rotation, int64_t heads, int64_t kv_heads,
                       int64_t head_width, int64_t rotated, Tensor **found) {
    return pathswarm::reported([&] {
        auto parts = RotateFunction::apply(*stacked, *rotation, heads, kv_heads, head_width, rotated);
        for (int part = 0; part < 3; ++part) found[part] = new Tensor(parts[part]);
    });
}

// The first half of the last dimension, activated, times the second half.
char *pathswarm_gate(const Tensor *hidden, int64_t activation, Tensor **found) {
    return pathswarm::reported([&] { *found = new Tensor(GateFunction::apply(*hidden, activation)); });
}

// Losses of rows of logits, `[rows]`, f32. The logits become their gradient.
char *pathswarm_softmax_gradient(const Tensor *logits, const Tensor *targets, Tensor **losses) {
    return pathswarm::reported([&] {
        TORCH_CHECK(reinterpret_cast<uintptr_t>(logits->data_ptr()) % 16 == 0, "logits that are not aligned");
        Tensor found = at::empty({logits->size(0)}, logits->options().dtype(at::kFloat));
        int vocabulary = static_cast<int>(logits->size(1));
        constexpr unsigned MOST_THREADS = 512;
        Grid grid{static_cast<unsigned>(logits->size(0)), 1, std::min(MOST_THREADS, warps_for(vocabulary / 8 + 1))};
        pathswarm::launch(logits->device(), pathswarm::SoftmaxGradient, grid, values<void>(*logits),
                          values<void>(*targets), values<float>(found), vocabulary);
        *losses = new Tensor(found);
    });
}

// How often this thread has started each kernel.
void pathswarm_kernel_launches(int64_t *launches) {
    std::copy(pathswarm::launches, pathswarm::launches + pathswarm::KERNELS, launches);
}

} // extern "C"
