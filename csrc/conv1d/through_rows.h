// Convolutions of channels-last signals through rows. Transpositions make contiguous rows of the
// operands, a path for rows convolves them, and a last transposition restores the layout of the
// result. Plain host C++.
#pragma once

#include "conv1d/geometry.h"
#include "transpose/transpose_plan.h"

namespace gpuopt::conv1d {

// Transpositions take this long on an H200: a launch, the bytes that they move, and at least a time
// per value on the element-wise engine. 90 of the 109 transpositions in transpose.json, sweep.json,
// sweep-47.json and sweep-48.json take 0.75 to 1.25 times as long.
constexpr double kTransposeUs = 1.6, kTransposeBytesPerUs = 3.5e6, kEngineValuesPerUs = 3.3e5;
// Rows must take at most this share of the time: their copies need memory.
constexpr double kRowsShare = 0.9;

// Whether a signal is [batch, size, channels] in memory and has no rows yet.
inline bool has_no_rows(const Signal& signal, int64_t groups) {
  const int64_t channels = groups * signal.channels;
  return signal.channel_stride == 1 && channels > 1 && signal.size > 1 && signal.stride >= channels;
}

namespace detail {

inline double us_of_transposition(const Problem& p, const Signal& signal, int64_t rows,
                                  int64_t columns, int64_t row_stride) {
  transpose::Problem copy;
  copy.in = signal.data;
  copy.item = item_of(p);
  copy.rows = rows;
  copy.columns = columns;
  copy.row_stride = row_stride;
  if (p.batch > 1) {
    copy.batch_dims = 1;
    copy.batch_sizes[0] = p.batch;
    copy.batch_strides[0] = signal.batch_stride;
  }
  const auto values = static_cast<double>(p.batch) * static_cast<double>(rows * columns);
  const double us = 2 * values * static_cast<double>(copy.item) / kTransposeBytesPerUs;
  const bool is_engine = transpose::make_plan(copy).path == transpose::Path::kEngine;
  return kTransposeUs + (is_engine ? std::max(us, values / kEngineValuesPerUs) : us);
}

}  // namespace detail

struct RowsProblem {
  Problem problem;  // copies and the result have no memory yet
  double us;        // of all transpositions
};

// The problem in which every channels-last signal has become rows, if there is one.
inline std::optional<RowsProblem> through_rows(const Problem& p, Pass pass) {
  RowsProblem found{p, 0};
  const auto make_rows = [&](Signal& signal, bool is_result) {
    if (!has_no_rows(signal, p.groups)) return false;
    const int64_t channels = p.groups * signal.channels, size = signal.size;
    found.us += is_result ? detail::us_of_transposition(p, signal, channels, size, size)
                          : detail::us_of_transposition(p, signal, size, channels, signal.stride);
    signal.data = nullptr;
    signal.batch_stride = channels * size;
    signal.channel_stride = size;
    signal.stride = 1;
    return true;
  };
  const bool from = make_rows(found.problem.from, pass == Pass::kInputGradient);
  const bool to = make_rows(found.problem.to, pass == Pass::kForward);
  if (!from && !to) return {};
  return found;
}

}  // namespace gpuopt::conv1d
