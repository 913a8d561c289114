// What stands between the products of a network on a CPU, a window at a time, so that a plane is read and written once.
//
// All arrays are fp32. A plane is (samples, segments, width), contiguous unless strides are given; then its last axis is.
// A sample is worked on by one thread, and the threads' shares and sums have a fixed order: the same inputs and number
// of threads give the same bits.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <omp.h>

namespace {

struct Dropout {
    int32_t bound;  // a word below it drops its element
    uint32_t first, second;  // the key: another one for every mask
    float scale;
};

// Two rounds of a multiplicative hash over the element's number; between them the second half of the key comes in.
inline int32_t word(uint32_t number, Dropout of)
{
    uint32_t x = number * 0x9E3779B9u + of.first;
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = x ^ (x >> 15) ^ of.second;
    x = x * 0xD35A2D97u;
    return static_cast<int32_t>(x ^ (x >> 15));
}

struct Share {
    int64_t begin, end;
};

// What this thread works on.
inline Share share_of(int64_t n)
{
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    return {n * thread / threads, n * (thread + 1) / threads};
}

template <bool relu, bool drop>
inline float joined(float* x, const float* residual, uint8_t* kept, int64_t n, uint32_t number, Dropout of)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        bool keep = !relu || !(x[i] <= 0);  // not a number stays one
        if (drop)
            keep = keep & (word(number + static_cast<uint32_t>(i), of) >= of.bound);
        const float value = residual[i] + (keep ? x[i] * of.scale : 0.0f);
        kept[i] = keep;
        x[i] = value;
        sum += value;
    }
    return sum;
}

using Join = float (*)(float*, const float*, uint8_t*, int64_t, uint32_t, Dropout);

Join join_of(bool relu, bool drop)
{
    if (relu)
        return drop ? joined<true, true> : joined<true, false>;
    return drop ? joined<false, true> : joined<false, false>;
}

// Sums of each thread, (threads, n) -> (n,), in the order of the threads.
void add_up(const float* parts, float* sums, int64_t threads, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = 0;
        for (int64_t thread = 0; thread < threads; ++thread)
            sum += parts[thread * stride + i];
        sums[i] = sum;
    }
}

struct Arrays {
    const float *gradient, *x;
    const uint8_t* kept;
    const float *weight, *moments;
    float *grad_residual, *grad_x;
};

// Samples whose gradients of weight and bias are summed before they are added to those of all.
constexpr int TOGETHER = 4;

template <int rows>
void backward_of(const Arrays& of, float* of_weight, float* of_bias, int64_t first, int64_t n, float scale)
{
    const float *up[rows], *x[rows];
    float mean[rows], inverse[rows], sum[rows] = {}, along[rows] = {};
    for (int row = 0; row < rows; ++row) {
        up[row] = of.gradient + (first + row) * n;
        x[row] = of.x + (first + row) * n;
        mean[row] = of.moments[2 * (first + row)];
        inverse[row] = of.moments[2 * (first + row) + 1];
    }
#pragma omp simd reduction(+ : sum, along)
    for (int64_t i = 0; i < n; ++i) {
        float normed_sum = 0, up_sum = 0;
        for (int row = 0; row < rows; ++row) {
            const float normed = (x[row][i] - mean[row]) * inverse[row];
            const float scaled = up[row][i] * of.weight[i];
            normed_sum += up[row][i] * normed;
            up_sum += up[row][i];
            sum[row] += scaled;
            along[row] += scaled * normed;
        }
        of_weight[i] += normed_sum;
        of_bias[i] += up_sum;
    }
    for (int row = 0; row < rows; ++row) {
        const float off = sum[row] / n, tilt = along[row] / n;
        const uint8_t* keep = of.kept + (first + row) * n;
        float* to = of.grad_residual + (first + row) * n;
        float* dropped = of.grad_x + (first + row) * n;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            const float normed = (x[row][i] - mean[row]) * inverse[row];
            const float value = (up[row][i] * of.weight[i] - off - normed * tilt) * inverse[row];
            to[i] = value;
            dropped[i] = keep[i] ? value * scale : 0.0f;
        }
    }
}

}  // namespace

extern "C" {

// result = dropout(relu(x)), x strided.
void relu_dropout(const float* x, float* result, int64_t samples, int64_t segments, int64_t width,
                  int64_t sample_stride, int64_t segment_stride,
                  int32_t bound, uint32_t first, uint32_t second, float scale, int32_t threads)
{
    const Dropout of{bound, first, second, scale};
#pragma omp parallel num_threads(threads)
    {
        const Share share = share_of(samples * segments);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const float* from = x + row / segments * sample_stride + row % segments * segment_stride;
            float* to = result + row * width;
            const uint32_t number = static_cast<uint32_t>(row * width);
#pragma omp simd
            for (int64_t i = 0; i < width; ++i) {
                const bool keep = !(from[i] <= 0) & (word(number + static_cast<uint32_t>(i), of) >= of.bound);
                to[i] = keep ? from[i] * of.scale : 0.0f;
            }
        }
    }
}

// Its gradient: what was dropped and what was below zero are both 0 in the result.
void relu_dropout_backward(const float* gradient, const float* result, float* grad_x, int64_t n, float scale, int32_t threads)
{
#pragma omp parallel num_threads(threads)
    {
        const Share share = share_of(n);
#pragma omp simd
        for (int64_t i = share.begin; i < share.end; ++i)
            grad_x[i] = result[i] <= 0 ? 0.0f : gradient[i] * scale;
    }
}

// x = residual + dropout(x), or dropout(relu(x)), in place; kept says of which elements. Then, where there is a weight,
// result = (x - mean) / deviation * weight + bias over each sample; moments: mean and 1 / deviation of each.
void join_norm(float* x, const float* residual, uint8_t* kept, const float* weight, const float* bias,
               float* result, float* moments, int64_t samples, int64_t segments, int64_t width,
               int64_t sample_stride, int64_t segment_stride, int32_t relu, int32_t drop,
               int32_t bound, uint32_t first, uint32_t second, float scale, float eps, int32_t threads)
{
    const Dropout of{bound, first, second, scale};
    const Join join = join_of(relu, drop);
    const int64_t n = segments * width;
    if (segment_stride == width) {
        width = n;
        segments = 1;
    }
#pragma omp parallel num_threads(threads)
    {
        const Share share = share_of(samples);
        for (int64_t sample = share.begin; sample < share.end; ++sample) {
            float* row = x + sample * n;
            float sum = 0;
            for (int64_t segment = 0; segment < segments; ++segment) {
                const int64_t at = sample * n + segment * width;
                sum += join(x + at, residual + sample * sample_stride + segment * segment_stride, kept + at, width,
                            static_cast<uint32_t>(at), of);
            }
            if (!weight)
                continue;
            const float mean = sum / n;
            float squares = 0;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < n; ++i)
                squares += (row[i] - mean) * (row[i] - mean);
            const float inverse = 1 / std::sqrt(squares / n + eps);
            float* to = result + sample * n;
#pragma omp simd
            for (int64_t i = 0; i < n; ++i)
                to[i] = (row[i] - mean) * inverse * weight[i] + bias[i];
            moments[2 * sample] = mean;
            moments[2 * sample + 1] = inverse;
        }
    }
}

// Gradients of join_norm with a weight. parts: (threads, 2, n) of zeros; grad_affine: (2, n), of weight and bias.
void join_norm_backward(const float* gradient, const float* x, const uint8_t* kept, const float* weight,
                        const float* moments, float* grad_residual, float* grad_x, float* parts, float* grad_affine,
                        int64_t samples, int64_t n, float scale, int32_t threads)
{
    const Arrays arrays{gradient, x, kept, weight, moments, grad_residual, grad_x};
    int64_t used = 1;
#pragma omp parallel num_threads(threads)
    {
        float* of_weight = parts + omp_get_thread_num() * 2 * n;
        float* of_bias = of_weight + n;
        const Share share = share_of(samples);
#pragma omp single
        used = omp_get_num_threads();
        int64_t sample = share.begin;
        for (; sample + TOGETHER <= share.end; sample += TOGETHER)
            backward_of<TOGETHER>(arrays, of_weight, of_bias, sample, n, scale);
        for (; sample < share.end; ++sample)
            backward_of<1>(arrays, of_weight, of_bias, sample, n, scale);
    }
    add_up(parts, grad_affine, used, 2 * n, 2 * n);
}

// grad_x = the gradient where kept, times scale.
void kept_backward(const float* gradient, const uint8_t* kept, float* grad_x, int64_t n, float scale, int32_t threads)
{
#pragma omp parallel num_threads(threads)
    {
        const Share share = share_of(n);
#pragma omp simd
        for (int64_t i = share.begin; i < share.end; ++i)
            grad_x[i] = kept[i] ? gradient[i] * scale : 0.0f;
    }
}

}
