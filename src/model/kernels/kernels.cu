// What lies between the products of a network in bfloat16: norms, rotation, gates and the loss, each in one pass over memory.
//
// Compiled for the card when the program starts (cuda.cpp), and as C++ by on_cpu.cpp, so that tests run without a card. Needs
// no header. Every sum is made in a fixed order: the same card computes the same bits.

typedef unsigned short bf16;

__device__ inline float wide(bf16 value) { return __uint_as_float(static_cast<unsigned>(value) << 16); }

// To the nearest, ties to even.
__device__ inline bf16 narrow(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16>((bits >> 16) | 0x40u);
    return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct alignas(8) Four {
    bf16 values[4];
};

struct alignas(16) Eight {
    bf16 values[8];
};

struct alignas(16) FourWide {
    float values[4];
};

// The sum over the 32 threads of a warp, in each of them.
__device__ inline float warp_sum(float value) {
    for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}

// Sums of two values over a block, in each of its threads. Calls in turn use the two halves of `scratch`, 128 floats, so that
// one barrier a call is enough.
__device__ inline void block_sums(float &first, float &second, float *scratch, int call) {
    float *own = scratch + (call % 2) * 64;
    int warps = (blockDim.x + 31) / 32;
    first = warp_sum(first);
    second = warp_sum(second);
    if (threadIdx.x % 32 == 0) {
        own[threadIdx.x / 32] = first;
        own[32 + threadIdx.x / 32] = second;
    }
    __syncthreads();
    first = second = 0;
    for (int warp = 0; warp < warps; ++warp) {
        first += own[warp];
        second += own[32 + warp];
    }
}

// A layer norm (`centred`) or a norm by the root mean square of f32 rows, rounded to bfloat16. With `added`, it is that of the
// sum of `stream` and `added`, which goes to `sum`. `statistics` gets each row's mean and the inverse of its deviation. `width`
// is a multiple of 4. A warp a row.
extern "C" __global__ LAUNCH_BOUNDS(1024) void norm_forward(const float *stream, const bf16 *added, const float *weight, const float *bias,
                                        float *sum, bf16 *normed, float *statistics, long long rows, int width,
                                        float epsilon, int centred) {
    long long row = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    int lane = threadIdx.x % 32, parts = width / 4;
    const FourWide *values = reinterpret_cast<const FourWide *>(stream + row * width);
    float total = 0;
    if (added != nullptr) {
        const Four *more = reinterpret_cast<const Four *>(added + row * width);
        FourWide *together = reinterpret_cast<FourWide *>(sum + row * width);
        for (int part = lane; part < parts; part += 32) {
            FourWide now = values[part];
            Four with = more[part];
            for (int i = 0; i < 4; ++i) total += now.values[i] += wide(with.values[i]);
            together[part] = now;
        }
        values = together;
    } else if (centred) {
        for (int part = lane; part < parts; part += 32) {
            FourWide now = values[part];
            for (int i = 0; i < 4; ++i) total += now.values[i];
        }
    }
    float mean = centred ? warp_sum(total) / width : 0;
    float squares = 0;
    for (int part = lane; part < parts; part += 32) {
        FourWide now = values[part];
        for (int i = 0; i < 4; ++i) squares += (now.values[i] - mean) * (now.values[i] - mean);
    }
    float inverse = rsqrtf(warp_sum(squares) / width + epsilon);
    Four *out = reinterpret_cast<Four *>(normed + row * width);
    for (int part = lane; part < parts; part += 32) {
        FourWide now = values[part], by = reinterpret_cast<const FourWide *>(weight)[part];
        Four found;
        for (int i = 0; i < 4; ++i) {
            float shift = bias == nullptr ? 0 : bias[4 * part + i];
            found.values[i] = narrow((now.values[i] - mean) * inverse * by.values[i] + shift);
        }
        out[part] = found;
    }
    if (lane == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

// The gradient by `values`, which norm_forward normalised, of what follows the norm and, with `by_sum`, of what follows the sum.
// `by_added` gets it in bfloat16, too. `by_weight` and `by_bias`, `[blocks, width]`, get what each block's rows add. Blocks take
// rows in turn, and each thread four columns: there are at least `width / 4` threads.
extern "C" __global__ LAUNCH_BOUNDS(1024) void norm_backward(const bf16 *by_normed, const float *by_sum, const float *values,
                                         const float *statistics, const float *weight, float *by_stream, bf16 *by_added,
                                         float *by_weight, float *by_bias, long long rows, int width, int centred) {
    SHARED_FLOATS(scratch, 128);
    int column = 4 * threadIdx.x, call = 0;
    bool is_inside = column < width;
    FourWide scale = {}, of_weight = {}, of_bias = {};
    if (is_inside) scale = *reinterpret_cast<const FourWide *>(weight + column);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        long long place = row * width + column;
        float mean = statistics[2 * row], inverse = statistics[2 * row + 1], sum = 0, along = 0;
        FourWide normed = {}, slope = {};
        if (is_inside) {
            normed = *reinterpret_cast<const FourWide *>(values + place);
            Four gradient = *reinterpret_cast<const Four *>(by_normed + place);
            for (int i = 0; i < 4; ++i) {
                normed.values[i] = (normed.values[i] - mean) * inverse;
                slope.values[i] = wide(gradient.values[i]);
                of_weight.values[i] += slope.values[i] * normed.values[i];
                of_bias.values[i] += slope.values[i];
                slope.values[i] *= scale.values[i];
                sum += slope.values[i];
                along += slope.values[i] * normed.values[i];
            }
        }
        block_sums(sum, along, scratch, call++);
        if (!is_inside) continue;
        sum = centred ? sum / width : 0;
        along /= width;
        FourWide found = {};
        if (by_sum != nullptr) found = *reinterpret_cast<const FourWide *>(by_sum + place);
        Four rounded;
        for (int i = 0; i < 4; ++i) {
            found.values[i] += inverse * (slope.values[i] - sum - normed.values[i] * along);
            rounded.values[i] = narrow(found.values[i]);
        }
        *reinterpret_cast<FourWide *>(by_stream + place) = found;
        if (by_added != nullptr) *reinterpret_cast<Four *>(by_added + place) = rounded;
    }
    if (!is_inside) return;
    long long place = static_cast<long long>(blockIdx.x) * width + column;
    if (by_weight != nullptr) *reinterpret_cast<FourWide *>(by_weight + place) = of_weight;
    if (by_bias != nullptr) *reinterpret_cast<FourWide *>(by_bias + place) = of_bias;
}

// Heads of tokens: the strides in values of sequences, tokens and heads.
struct Heads {
    bf16 *values;
    long long sequence, token, head;
    int heads;
};

// Queries, keys and values.
struct Parts {
    Heads parts[3];
};

// Copies the heads of all tokens. Of the first `turned` heads, dimension i of the first `rotated` is turned with dimension i +
// rotated/2 by the angle whose cosine and sine are in `rotation`, `[time, rotated/2, 2]`, or back with `direction` -1. A block a
// token. `width` is a multiple of 8, and `rotated` of 16.
extern "C" __global__ LAUNCH_BOUNDS(1024) void rotate(Parts from, Parts to, const float *rotation, int time, int turned, int width, int rotated,
                                  float direction) {
    long long sequence = blockIdx.x / time;
    int token = blockIdx.x % time, units = width / 8, half = rotated / 2;
    int all = from.parts[0].heads + from.parts[1].heads + from.parts[2].heads;
    for (int unit = threadIdx.x; unit < all * units; unit += blockDim.x) {
        int number = unit / units, begin = unit % units * 8, head = number, part = 0;
        while (head >= from.parts[part].heads) head -= from.parts[part++].heads;
        const Heads &source = from.parts[part], &target = to.parts[part];
        const bf16 *own = source.values + sequence * source.sequence + token * source.token + head * source.head;
        Eight found = *reinterpret_cast<const Eight *>(own + begin);
        if (number < turned && begin < rotated) {
            bool is_first = begin < half;
            int angle = is_first ? begin : begin - half;
            Eight other = *reinterpret_cast<const Eight *>(own + (is_first ? begin + half : angle));
            float sign = is_first ? -direction : direction;
            const float *pairs = rotation + (static_cast<long long>(token) * half + angle) * 2;
            for (int i = 0; i < 8; ++i) {
                float turn = wide(found.values[i]) * pairs[2 * i] + sign * wide(other.values[i]) * pairs[2 * i + 1];
                found.values[i] = narrow(turn);
            }
        }
        bf16 *out = target.values + sequence * target.sequence + token * target.token + head * target.head;
        *reinterpret_cast<Eight *>(out + begin) = found;
    }
}

// An activation and its slope: 0 silu, 1 gelu, 2 gelu by tanh.
__device__ inline void activation(int kind, float x, float &value, float &slope) {
    if (kind == 0) {
        float share = 1 / (1 + __expf(-x));
        value = x * share;
        slope = share * (1 + x * (1 - share));
    } else if (kind == 1) {
        float share = 0.5f * (1 + erff(x * 0.70710678f));
        value = x * share;
        slope = share + x * 0.39894228f * __expf(-0.5f * x * x);
    } else {
        float inner = 0.79788456f * (x + 0.044715f * x * x * x), turn = tanhf(inner);
        value = 0.5f * x * (1 + turn);
        slope = 0.5f * (1 + turn) + 0.5f * x * (1 - turn * turn) * 0.79788456f * (1 + 0.134145f * x * x);
    }
}

// The first half of each row of `hidden`, `[rows, 2 width]`, activated, times the second half: `[rows, width]`. `width` is a
// multiple of 8. Blocks `[rows, ..]`.
extern "C" __global__ LAUNCH_BOUNDS(1024) void gate_forward(const bf16 *hidden, bf16 *out, int width, int kind) {
    int begin = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (begin >= width) return;
    const bf16 *row = hidden + static_cast<long long>(blockIdx.x) * 2 * width;
    Eight gate = *reinterpret_cast<const Eight *>(row + begin);
    Eight value = *reinterpret_cast<const Eight *>(row + width + begin), found;
    for (int i = 0; i < 8; ++i) {
        float active, slope;
        activation(kind, wide(gate.values[i]), active, slope);
        found.values[i] = narrow(active * wide(value.values[i]));
    }
    *reinterpret_cast<Eight *>(out + static_cast<long long>(blockIdx.x) * width + begin) = found;
}

// The gradient by `hidden`, `[rows, 2 width]`.
extern "C" __global__ LAUNCH_BOUNDS(1024) void gate_backward(const bf16 *by_out, const bf16 *hidden, bf16 *by_hidden, int width, int kind) {
    int begin = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (begin >= width) return;
    long long first = static_cast<long long>(blockIdx.x) * 2 * width + begin;
    Eight gate = *reinterpret_cast<const Eight *>(hidden + first);
    Eight value = *reinterpret_cast<const Eight *>(hidden + first + width);
    Eight by = *reinterpret_cast<const Eight *>(by_out + static_cast<long long>(blockIdx.x) * width + begin);
    Eight by_gate, by_value;
    for (int i = 0; i < 8; ++i) {
        float active, slope, gradient = wide(by.values[i]);
        activation(kind, wide(gate.values[i]), active, slope);
        by_gate.values[i] = narrow(gradient * wide(value.values[i]) * slope);
        by_value.values[i] = narrow(gradient * active);
    }
    *reinterpret_cast<Eight *>(by_hidden + first) = by_gate;
    *reinterpret_cast<Eight *>(by_hidden + first + width) = by_value;
}

// Adds values to a maximum and a sum of exponentials below it.
__device__ inline void grow(float &most, float &sum, float other, float others) {
    float next = fmaxf(most, other);
    // Of two that are empty, the difference would not be a number.
    if (most != next) sum *= __expf(most - next);
    sum += other == next ? others : others * __expf(other - next);
    most = next;
}

// Cross-entropy of rows of logits, `[rows, vocabulary]`, in nats, and in their place its gradient: the probabilities, and at the
// target less the sum of the others, since one less its own would be lost to rounding where that is near one. A block a row.
extern "C" __global__ LAUNCH_BOUNDS(1024) void softmax_gradient(bf16 *logits, const long long *targets, float *losses, int vocabulary) {
    SHARED_FLOATS(shared, 64);
    bf16 *row = logits + static_cast<long long>(blockIdx.x) * vocabulary;
    int target = static_cast<int>(targets[blockIdx.x]), threads = blockDim.x;
    if (target < 0 || target >= vocabulary) target = 0;
    bool is_even = vocabulary % 8 == 0;
    int parts = is_even ? vocabulary / 8 : vocabulary;
    float most = -__int_as_float(0x7f800000), sum = 0, of_target = wide(row[target]);
    for (int part = threadIdx.x; part < parts; part += threads) {
        if (!is_even) {
            if (part != target) grow(most, sum, wide(row[part]), 1);
            continue;
        }
        Eight eight = reinterpret_cast<const Eight *>(row)[part];
        float greatest = most, more = 0;
        for (int i = 0; i < 8; ++i) {
            if (8 * part + i != target) greatest = fmaxf(greatest, wide(eight.values[i]));
        }
        for (int i = 0; i < 8; ++i) {
            if (8 * part + i != target) more += __expf(wide(eight.values[i]) - greatest);
        }
        grow(most, sum, greatest, more);
    }
    for (int other = 16; other > 0; other /= 2) {
        float theirs = __shfl_xor_sync(0xffffffffu, most, other), of_theirs = __shfl_xor_sync(0xffffffffu, sum, other);
        grow(most, sum, theirs, of_theirs);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = most;
        shared[32 + threadIdx.x / 32] = sum;
    }
    __syncthreads();
    most = -__int_as_float(0x7f800000);
    sum = 0;
    for (int warp = 0; warp < threads / 32; ++warp) grow(most, sum, shared[warp], shared[32 + warp]);
    // `sum` has all but the target, below the greatest of them.
    float greatest = fmaxf(most, of_target);
    float others = most == greatest ? sum : sum * __expf(most - greatest), own = __expf(of_target - greatest);
    float inverse = 1 / (others + own);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = of_target == greatest ? log1pf(others) : greatest - of_target + logf(others + own);
    }
    for (int part = threadIdx.x; part < parts; part += threads) {
        if (!is_even) {
            row[part] = narrow(part == target ? -others * inverse : __expf(wide(row[part]) - greatest) * inverse);
            continue;
        }
        Eight eight = reinterpret_cast<const Eight *>(row)[part];
        for (int i = 0; i < 8; ++i) {
            bool is_target = 8 * part + i == target;
            float share = is_target ? -others * inverse : __expf(wide(eight.values[i]) - greatest) * inverse;
            eight.values[i] = narrow(share);
        }
        reinterpret_cast<Eight *>(row)[part] = eight;
    }
}
