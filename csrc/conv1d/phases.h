// Rows of inputs that shared memory holds decomposed into phases, for f32. Phase j holds every s-th
// value of a row from value j on, for a stride s. Neighbouring positions then read neighbouring
// values, whatever the stride. Plain host C++.
#pragma once

#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

struct PhasedRows {
  FastDiv stride, taps, row_values;  // row_values: values of a row that are read
  uint32_t dilation;
  uint32_t pitch;      // values from a phase to the next one
  uint32_t row_pitch;  // values from a row to the next one

  // The index of value `index` of a row.
  GPUOPT_HOST_DEVICE uint32_t index_of(uint32_t index) const {
    const uint32_t phase = stride.divmod(index);
    return phase * pitch + index;
  }
  // The index of the input of product (c, k) at position 0, if rows are channels.
  GPUOPT_HOST_DEVICE uint32_t offset_of(uint32_t product) const {
    const uint32_t k = taps.divmod(product);
    return product * row_pitch + index_of(k * dilation);
  }
};

inline int64_t phase_stride(const Problem& p) { return has_unit_stride(p) ? 1 : p.stride; }

// An odd pitch puts values that lie side by side in memory into different banks.
inline int64_t pitch_of_phases(const Problem& p, int64_t positions) {
  return (positions + span_of(p) / phase_stride(p)) | 1;
}

inline int64_t bytes_of_phases(const Problem& p, int64_t positions) {
  return p.from.channels * phase_stride(p) * pitch_of_phases(p, positions) * 4;
}

inline PhasedRows phased_rows(const Problem& p, int64_t positions) {
  const int64_t stride = phase_stride(p), pitch = pitch_of_phases(p, positions);
  return {divide_by(stride),
          divide_by(p.taps),
          divide_by((positions - 1) * stride + span_of(p) + 1),
          static_cast<uint32_t>(p.dilation),
          static_cast<uint32_t>(pitch),
          static_cast<uint32_t>(stride * pitch)};
}

}  // namespace gpuopt::conv1d
