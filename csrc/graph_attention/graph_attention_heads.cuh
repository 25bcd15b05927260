// What a thread reads for attention: its features of a head, and its next entries.
#pragma once

#include "common/floats.cuh"
#include "common/warp.cuh"
#include "graph_attention/graph_attention_plan.h"
#include "rows/device/rows_access.cuh"
#include "rows/device/rows_walk.cuh"

namespace gpuopt::graph_attention {

constexpr int kAttended = 4;  // entries of a thread whose loads are in flight together

// Blocks of an SM, which limit the registers of a thread.
template <typename T, bool kProduct, bool kGradient>
constexpr int kAttentionBlocks = kGradient ? (sizeof(T) == 8 ? 2
                                              : kProduct     ? 3
                                                             : 4)
                                           : (kProduct || sizeof(T) == 8 ? 4 : 5);

// The features of a thread: 16 bytes of one head.
//
//   thread     0   1   2   3 | 4   5   6   7 | 8 ...        head_lanes = 4, tile_heads = 8
//   head       0             | 1             | 2 ...
//   features   0-3 ...  12-15| 0-3 ...  12-15| 0-3 ...      16 features of float32
template <typename T>
struct HeadPart {
  static constexpr int kCount = kVecSize<T>;
  uint32_t head;
  uint32_t key, value;  // the first feature in a row of left and right, and of value and out
  bool has_key, has_value;
  bool leads;  // writes the numbers of the head

  __device__ __forceinline__ HeadPart(const AttentionArgs& args, const Place& place) {
    const AttentionProblem& problem = args.problem;
    const auto heads = static_cast<uint32_t>(problem.heads);
    const uint32_t of_key = static_cast<uint32_t>(problem.key_features) / heads;
    const uint32_t of_value = static_cast<uint32_t>(problem.features) / heads;
    const uint32_t at = place.lane % args.head_lanes * kCount;
    head = place.tile * args.tile_heads + place.lane / args.head_lanes;
    const bool has_head = head < heads;
    key = head * of_key + at;
    value = head * of_value + at;
    has_key = has_head && at < of_key;
    has_value = has_head && at < of_value;
    leads = has_head && at == 0;
  }
  __device__ __forceinline__ bool has_head(const AttentionProblem& problem) const {
    return head < problem.heads;
  }
};

// Values that are not valid are undefined.
template <typename T>
__device__ __forceinline__ void load_values(const T* from, bool valid, T (&values)[kVecSize<T>]) {
  const uint4 words = load_16_bytes(from, valid, false);
  memcpy(values, &words, sizeof(words));
}

// The operand of a row or of a column from which scores are made: 16 bytes of the product form, or
// one number of the additive form.
template <typename T, bool kProduct>
struct ScoreOperand {
  T values[kProduct ? kVecSize<T> : 1];

  __device__ __forceinline__ void load(const AttentionProblem& problem, const HeadPart<T>& part,
                                       const Rows& rows, int64_t row, bool valid) {
    const T* const from = static_cast<const T*>(rows.data) + row * rows.row;
    if constexpr (kProduct) {
      load_values(from + part.key, valid && part.has_key, values);
    } else {
      values[0] = load_if(from + part.head, valid && part.has_head(problem));
    }
  }
};

// The thread's share of the dot product of 16 bytes.
template <typename T, typename C>
__device__ __forceinline__ C partial_dot(const T (&a)[kVecSize<T>], const T (&b)[kVecSize<T>]) {
  C sum = C(0);
#pragma unroll
  for (int j = 0; j < kVecSize<T>; ++j) {
    sum = multiply_add(to_compute(a[j]), to_compute(b[j]), sum);
  }
  return sum;
}

// Adds up the shares of the threads of a head. All lanes of the warp take part, for exchanges
// between parts of a warp run one by one.
template <typename C>
__device__ __forceinline__ void add_shares(const AttentionArgs& args, C (&shares)[kAttended]) {
  for (uint32_t apart = args.head_lanes / 2; apart > 0; apart /= 2) {
#pragma unroll
    for (int u = 0; u < kAttended; ++u) {
      shares[u] += shuffle_xor(shares[u], static_cast<int>(apart));
    }
  }
}

template <typename T, bool kProduct>
__device__ __forceinline__ compute_t<T> score_share(const HeadPart<T>& part,
                                                    const ScoreOperand<T, kProduct>& left,
                                                    const ScoreOperand<T, kProduct>& right) {
  using C = compute_t<T>;
  if constexpr (kProduct) {
    return part.has_key ? partial_dot<T, C>(left.values, right.values) : C(0);
  } else {
    return to_compute(left.values[0]) + to_compute(right.values[0]);
  }
}

// What a group knows of its next kAttended entries.
class NextEntries {
 public:
  __device__ __forceinline__ NextEntries(const Matrix& matrix, const Window& window)
      : matrix_(matrix), window_(window) {}

  // Reads the entries from number `from` of the window on.
  __device__ __forceinline__ void fetch(int32_t from, bool with_places) {
    const int64_t entry = window_.begin + from;
    const int32_t count = window_.count - from;
    load_low_words(matrix_, matrix_.index, entry, count, columns_);
    if (!with_places || matrix_.entry == nullptr) return;
    load_low_words(matrix_, matrix_.entry, entry, count, places_);
  }
  __device__ __forceinline__ uint32_t column(int u) {
    last_column_ = max(last_column_, columns_[u]);
    return min(columns_[u], most_column());
  }
  // Where the numbers of entry `from + u` are.
  __device__ __forceinline__ int64_t place(int32_t from, int u) const {
    return matrix_.entry == nullptr
               ? window_.begin + from + u
               : int64_t{min(places_[u], static_cast<uint32_t>(matrix_.entries - 1))};
  }
  // Whether all columns exist.
  __device__ __forceinline__ bool in_range() const {
    return window_.count == 0 || last_column_ <= most_column();
  }

 private:
  __device__ __forceinline__ uint32_t most_column() const {
    return static_cast<uint32_t>(matrix_.columns - 1);
  }

  const Matrix& matrix_;
  const Window& window_;
  uint32_t columns_[kAttended] = {}, places_[kAttended] = {};
  uint32_t last_column_ = 0;
};

}  // namespace gpuopt::graph_attention
