// What a selective scan computes, and its tensors. Plain host code, which the kernels include.
//
//   dt = delta + delta_bias, or its softplus        a_t[n] = exp(dt_t A[n])
//   h_t[n] = a_t[n] h_(t-1)[n] + dt_t B_t[n] u_t     h_(-1) = 0
//   y_t = sum over n of C_t[n] h_t[n], + D u_t       out_t = y_t silu(z_t), or y_t without z
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "common/dtype.h"

namespace gpuopt::selective {

// A tensor (batch, channels, length) and its strides. `data` is null if there is none.
struct Sequence {
  void* data = nullptr;
  int64_t batch = 0, channel = 0, position = 0;

  GPUOPT_DESCRIBE(data, batch, channel, position)
};

// B or C: a tensor (batch, groups, states, length), or (channels, states) if `constant`. In a
// constant one, `group` is the stride from channel to channel.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t batch = 0, group = 0, state = 0, position = 0;
  bool constant = false;

  GPUOPT_DESCRIBE(data, dtype, batch, group, state, position, constant)
};

// The strides of states and positions may be this large, because offsets in a tile have 32 bits.
constexpr int64_t kMaxMatrixStride = INT32_MAX / 512;

// The compute type is f64 if `dtype` is, and f32 otherwise. A, D, delta_bias and last_state have
// the compute type, and are contiguous.
struct Problem {
  int64_t batch = 0, channels = 0, length = 0, states = 0;
  int64_t groups = 1;             // of channels that share B and C
  DType dtype = DType::kFloat32;  // of u, delta, z and out
  bool softplus = false;
  bool channels_last = false;  // whether neighbouring channels are neighbours in memory
  Sequence u, delta, z, out;
  Matrix B, C;
  const void* A = nullptr;           // [channels, states]
  const void* D = nullptr;           // [channels], or null
  const void* delta_bias = nullptr;  // [channels], or null
  void* last_state = nullptr;        // [batch, channels, states]

  GPUOPT_DESCRIBE(batch, channels, length, states, groups, dtype, softplus, channels_last, u, delta,
                  z, out, B, C, A, D, delta_bias, last_state)
};

// The gradients that a backward pass reads and writes. The gradients of A, D and delta_bias are
// parts, to be added over `rows`: one for each batch and segment of the length. A varying B or C
// has a part for each of the blocks that share a group. All parts have the compute type.
struct Gradients {
  Sequence out;                      // read; null: 0
  const void* last_state = nullptr;  // read: [batch, channels, states]; null: 0
  Sequence u, delta, z;              // z is null if the problem has none
  void* A = nullptr;                 // [rows, channels, states]
  void* D = nullptr;                 // [rows, channels], also if the problem has no D
  void* delta_bias = nullptr;        // [rows, channels]
  // [batch, groups, blocks, length, states], or [rows, channels, states] if constant
  void *B = nullptr, *C = nullptr;
};

constexpr int64_t kMaxStates = 256;

inline bool has_constant(const Problem& problem) {
  return problem.B.constant || problem.C.constant;
}

// Whether there are kernels. The types of 16 bits have none for a constant B or C.
inline bool is_supported(const Problem& problem) {
  constexpr int64_t kMaxConstantStates64 = 128;  // more would spill registers
  if (problem.states > kMaxStates) return false;
  if (!has_constant(problem)) return true;
  if (problem.dtype == DType::kFloat64) return problem.states <= kMaxConstantStates64;
  return problem.dtype == DType::kFloat32;
}

// One position: reads and writes `state`, and writes `out`. All operands are views (batch, heads,
// channels of a head, states) with strides in this order; 0 broadcasts.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t strides[4] = {};
};

struct Update {
  int64_t batch = 0, heads = 1, channels = 0, states = 0;
  int64_t heads_per_group = 1;  // B and C have groups in place of heads
  bool softplus = false;
  bool wide = false;                                  // whether to compute in f64
  Operand state, x, dt, A, B, C, D, z, dt_bias, out;  // D, z and dt_bias may be null
};

}  // namespace gpuopt::selective
