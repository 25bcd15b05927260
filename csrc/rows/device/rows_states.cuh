// What a thread keeps of the entries that it has seen, for each reduction. merge() takes the state
// of other entries of the same row.
#pragma once

#include <cstdint>

#include "common/types.cuh"

namespace gpuopt::rows {

template <typename C>
struct SumState {
  C sum = C(0);

  __device__ __forceinline__ void add(C x, int64_t) { sum += x; }
  __device__ __forceinline__ void merge(const SumState& other) { sum += other.sum; }
};

template <typename C>
struct ProdState {
  C product = C(1);

  __device__ __forceinline__ void add(C x, int64_t) { product *= x; }
  __device__ __forceinline__ void merge(const ProdState& other) { product *= other.product; }
};

// The largest value and its entry, or the smallest.
template <typename C, bool kIsMax>
struct alignas(16) ExtremeState {
  C value = C(0);
  int64_t entry = -1;

  // Whether x replaces this value if it comes later. A NaN wins.
  __device__ __forceinline__ bool loses_to(C x) const {
    const bool beaten = kIsMax ? x > value : x < value;
    return entry < 0 || (x != x ? value == value : beaten);
  }
  __device__ __forceinline__ void add(C x, int64_t number) {
    if (!loses_to(x)) return;
    value = x;
    entry = number;
  }
  __device__ __forceinline__ void merge(const ExtremeState& other) {
    const bool equal = value == other.value || (value != value && other.value != other.value);
    const bool is_first = entry >= 0 && equal ? other.entry < entry : loses_to(other.value);
    if (other.entry >= 0 && is_first) *this = other;
  }
};

// The sum of exp(x - most), and the maximum (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018).
template <typename C>
struct alignas(2 * sizeof(C)) LogSumState {
  C most = -INFINITY;
  C sum = C(0);

  __device__ __forceinline__ void add(C x, int64_t) { merge({x, C(1)}); }
  __device__ __forceinline__ void merge(const LogSumState& other) {
    const C limit = max(most, other.most);
    const bool stays = most == limit;
    const C rest = stays ? other.most : most;
    const C power = rest == limit ? C(1) : exp(rest - limit);  // both may be infinite
    sum = stays ? sum + other.sum * power : sum * power + other.sum;
    most = limit;
  }
};

// A softmax and the sum that it weights: the maximum score, the sum of exp(score - most), and that
// of exp(score - most) * x, for one feature x. A power of equal infinities is 1 here, so that
// scores of -inf before the first finite one are forgotten. result() makes NaN of what stays
// infinite.
template <typename C>
struct alignas(16) AttentionState {
  C most = -INFINITY;
  C sum = C(0);
  C value = C(0);

  static __device__ __forceinline__ C power(C score, C most) {
    return score == most ? C(1) : exp(score - most);
  }
  __device__ __forceinline__ void merge(const AttentionState& other) {
    const C limit = max(most, other.most);
    const C factor = power(most, limit), other_factor = power(other.most, limit);
    sum = sum * factor + other.sum * other_factor;
    value = value * factor + other.value * other_factor;
    most = limit;
  }
  __device__ __forceinline__ C result() const { return isinf(most) ? C(NAN) : value / sum; }
  __device__ __forceinline__ C log_sum() const { return most + log(sum); }
};

// The softmax of a value, given the state of its row. A row with an infinity is NaN.
template <typename T, typename C>
__device__ __forceinline__ T softmax_of(T x, const LogSumState<C>& row) {
  const C result = exp(to_compute(x) - row.most) / row.sum;
  return from_compute<T>(isinf(row.most) ? C(NAN) : result);
}

// The gradient of softmax at the result y, where the gradient of y is x. `sum` is that of y * x.
template <typename T, typename C>
__device__ __forceinline__ T softmax_gradient_of(T x, T y, C sum) {
  return from_compute<T>(to_compute(y) * (to_compute(x) - sum));
}

}  // namespace gpuopt::rows
