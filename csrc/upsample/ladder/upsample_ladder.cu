// The steps of upsample_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets. Forward steps copy bits, so types of one size share a kernel.
#include "common/index.h"
#include "common/vec.cuh"
#include "upsample/ladder/upsample_ladder.h"

namespace gpuopt::upsample {
namespace {

constexpr int kThreads = 256;

// [one_an_output]
template <typename T>
__global__ void one_an_output(const T* in, T* out, int64_t planes, Axis height, Axis width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= planes * height.out * width.out) return;
  const int64_t row = i / width.out, plane = row / height.out;
  const int y = static_cast<int>(row % height.out), x = static_cast<int>(i % width.out);
  out[i] = in[(plane * height.in + source_of(height, y)) * width.in + source_of(width, x)];
}
// [one_an_output]

// [hoisted]
constexpr int kPlanes = 8;  // per thread

template <typename T>
__global__ void hoisted(const T* in, T* out, int64_t planes, Axis height, Axis width) {
  const int64_t in_size = int64_t{height.in} * width.in;
  const int64_t out_size = int64_t{height.out} * width.out;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t first = i / out_size * kPlanes, position = i % out_size;
  const int y = static_cast<int>(position / width.out), x = static_cast<int>(position % width.out);
  const int64_t source = int64_t{source_of(height, y)} * width.in + source_of(width, x);
  const int64_t end = min(first + kPlanes, planes);
  for (int64_t plane = first; plane < end; ++plane) {
    out[plane * out_size + position] = in[plane * in_size + source];
  }
}
// [hoisted]

// [vectors_2x]
// A thread loads kInputs values: half of a 16-byte vector, or less if that does not divide the
// width. So every vector lies in one row and is aligned.
template <typename T, int kInputs>
__global__ void vectors_2x(const T* in, T* out, int64_t rows, int64_t width) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kInputs;
  if (i >= rows * width) return;
  const int64_t row = i / width, x = i % width;
  const Vec<T, kInputs> inputs = load_vec<T, kInputs>(in + i);
  Vec<T, 2 * kInputs> outputs;
#pragma unroll
  for (int k = 0; k < 2 * kInputs; ++k) outputs.values[k] = inputs.values[k / 2];
  T* to = out + (2 * row) * (2 * width) + 2 * x;
  store_vec(to, outputs);
  store_vec(to + 2 * width, outputs);
}
// [vectors_2x]

// [atomics]
// In global memory the atomic addition treats subnormal numbers as 0 (PTX ISA, "red").
__global__ void atomics(const float* grad_output, float* grad_input, int64_t planes, Axis height,
                        Axis width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= planes * height.out * width.out) return;
  const int64_t row = i / width.out, plane = row / height.out;
  const int y = static_cast<int>(row % height.out), x = static_cast<int>(i % width.out);
  const int64_t source_row = plane * height.in + source_of(height, y);
  atomicAdd(grad_input + source_row * width.in + source_of(width, x), grad_output[i]);
}
// [atomics]

// [gather]
__global__ void gather(const float* grad_output, float* grad_input, int64_t planes, Axis height,
                       Axis width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= planes * height.in * width.in) return;
  const int64_t row = i / width.in, plane = row / height.in;
  const int y = static_cast<int>(row % height.in), x = static_cast<int>(i % width.in);
  const int top = first_copy_of(height, y), bottom = first_copy_of(height, y + 1);
  const int left = first_copy_of(width, x), right = first_copy_of(width, x + 1);
  float sum = 0;  // the result of a pixel without copies
  for (int out_y = top; out_y < bottom; ++out_y) {
    const float* out_row = grad_output + (plane * height.out + out_y) * width.out;
    for (int out_x = left; out_x < right; ++out_x) sum += out_row[out_x];
  }
  grad_input[i] = sum;
}
// [gather]

// [gather_2x]
// A thread computes kPixels pixels: 2, or 1 if the width is odd. So every vector lies in one row
// and is aligned.
template <int kPixels>
__global__ void gather_2x(const float* grad_output, float* grad_input, int64_t rows,
                          int64_t width) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPixels;
  if (i >= rows * width) return;
  const int64_t row = i / width, x = i % width;
  const float* from = grad_output + (2 * row) * (2 * width) + 2 * x;
  const Vec<float, 2 * kPixels> upper = load_vec<float, 2 * kPixels>(from);
  const Vec<float, 2 * kPixels> lower = load_vec<float, 2 * kPixels>(from + 2 * width);
  Vec<float, kPixels> sums = {};
#pragma unroll
  for (int k = 0; k < 2 * kPixels; ++k) sums.values[k / 2] += upper.values[k];
#pragma unroll
  for (int k = 0; k < 2 * kPixels; ++k) sums.values[k / 2] += lower.values[k];
  store_vec(grad_input + i, sums);
}
// [gather_2x]

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>(ceil_div(threads, int64_t{kThreads}));
}

template <typename T, int kInputs>
void launch_vectors_2x(const T* in, T* out, int64_t rows, int64_t width, cudaStream_t stream) {
  if constexpr (kInputs > 1) {
    if (width % kInputs != 0) {
      return launch_vectors_2x<T, kInputs / 2>(in, out, rows, width, stream);
    }
  }
  const unsigned blocks = blocks_of(rows * width / kInputs);
  vectors_2x<T, kInputs><<<blocks, kThreads, 0, stream>>>(in, out, rows, width);
}

template <typename T>
cudaError_t launch_forward(int step, const LadderProblem& problem, cudaStream_t stream) {
  const auto* in = static_cast<const T*>(problem.from);
  auto* out = static_cast<T*>(problem.to);
  const Axis &height = problem.height, &width = problem.width;
  const int64_t planes = problem.planes, out_size = int64_t{height.out} * width.out;
  if (step == 0) {
    const unsigned blocks = blocks_of(planes * out_size);
    one_an_output<T><<<blocks, kThreads, 0, stream>>>(in, out, planes, height, width);
  } else if (step == 1) {
    const unsigned blocks = blocks_of(ceil_div(planes, int64_t{kPlanes}) * out_size);
    hoisted<T><<<blocks, kThreads, 0, stream>>>(in, out, planes, height, width);
  } else if (step == 2) {
    launch_vectors_2x<T, kVecSize<T> / 2>(in, out, planes * height.in, width.in, stream);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t ladder_forward(int step, const LadderProblem& problem, cudaStream_t stream) {
  return problem.element_bytes == 2 ? launch_forward<uint16_t>(step, problem, stream)
                                    : launch_forward<uint32_t>(step, problem, stream);
}

cudaError_t ladder_backward(int step, const LadderProblem& problem, cudaStream_t stream) {
  const auto* from = static_cast<const float*>(problem.from);
  auto* to = static_cast<float*>(problem.to);
  const Axis &height = problem.height, &width = problem.width;
  const int64_t planes = problem.planes, rows = planes * height.in, size = rows * width.in;
  if (step == 0) {
    const cudaError_t error = cudaMemsetAsync(to, 0, size * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    const unsigned blocks = blocks_of(planes * height.out * width.out);
    atomics<<<blocks, kThreads, 0, stream>>>(from, to, planes, height, width);
  } else if (step == 1) {
    gather<<<blocks_of(size), kThreads, 0, stream>>>(from, to, planes, height, width);
  } else if (step == 2 && width.in % 2 == 0) {
    gather_2x<2><<<blocks_of(size / 2), kThreads, 0, stream>>>(from, to, rows, width.in);
  } else if (step == 2) {
    gather_2x<1><<<blocks_of(size), kThreads, 0, stream>>>(from, to, rows, width.in);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace gpuopt::upsample
