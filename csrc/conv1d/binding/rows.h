// Signals as contiguous rows, for plans through rows (through_rows.h).
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "conv1d/binding/problem.h"
#include "conv1d/through_rows.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::conv1d {

// Transpositions below autograd, views and autocast.
struct PlainTensors {
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::AutoDispatchBelowADInplaceOrView no_autograd;
};

// An operand as rows.
inline Tensor in_rows(const Tensor& signal, const Sizes& sizes) {
  if (!has_no_rows(make_signal(signal, sizes), sizes.groups)) return signal;
  const PlainTensors plain;
  return gpuopt::call(Transpose2D{signal.mT()});
}

inline Sizes sizes_of_rows(const Sizes& sizes) {
  Sizes rows = sizes;
  rows.channels_last = false;
  return rows;
}

// A result that was computed as rows, in its layout. Undefined if ATen was chosen.
inline Tensor from_rows(const Tensor& rows, const Sizes& sizes) {
  if (!rows.defined() || !sizes.channels_last) return rows;
  const PlainTensors plain;
  return gpuopt::call(Transpose2D{rows}).mT();
}

}  // namespace gpuopt::conv1d
