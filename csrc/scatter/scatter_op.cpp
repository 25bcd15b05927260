// Reductions at an index: the schemas, and the kernels for CPU, Meta and vmap.
#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "binding/vmap.h"
#include "scatter/scatter_check.h"
#include "scatter/scatter_grouped.h"

namespace gpuopt::scatter {
namespace {

using c10::SymInt;
using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- CPU and Meta

template <typename Op>
typename Op::Result on_cpu(const Op& op) {
  const int64_t dim = check(op).dim;
  segment::check_range(name_of<Op>(), op.index, op.bins.expect_int());
  return by_groups(op, dim);
}

Tensor empty_bins(const Tensor& src, int64_t dim, const SymInt& bins, at::ScalarType dtype) {
  auto sizes = src.sym_sizes().vec();
  sizes[dim] = bins;
  return at::empty_symint(sizes, src.options().dtype(dtype));
}

Tensor on_meta(const Scatter& op) {
  return empty_bins(op.src, check(op).dim, op.bins, op.src.scalar_type());
}

TensorPair on_meta(const ScatterArg& op) {
  const int64_t dim = check(op).dim;
  return {empty_bins(op.src, dim, op.bins, op.src.scalar_type()),
          empty_bins(op.src, dim, op.bins, at::kLong)};
}

// ---------------------------------------------------------------- vmap

// One call for all examples. With an index each, the bins of all examples lie behind each other,
// and results have the examples in dimension `dim`.
struct Examples {
  Tensor src, index;
  int64_t dim;
  SymInt bins;
  bool folds;

  template <typename Op>
  Examples(const Op& op, int64_t dim, const VmapLevel& level, const SymInt& examples)
      : dim(dim), bins(op.bins) {
    const Operand slices = level.unwrap(op.src), entries = level.unwrap(op.index);
    folds = entries.batch_dim.has_value();
    if (folds) {
      src = batched_at(slices, dim, examples).flatten(dim, dim + 1);
      index = fold_index(batched_at(entries, 0, examples), examples, bins);
      bins = bins * examples;
    } else {
      src = batched_at(slices, 0, examples);
      index = entries.value;
      ++this->dim;
    }
  }

  Tensor wrapped(const Tensor& result, const VmapLevel& level, const SymInt& examples,
                 const SymInt& of_example) const {
    if (!folds) return level.wrap(result, 0);
    return level.wrap(result.unflatten_symint(dim, std::array<SymInt, 2>{examples, of_example}),
                      dim);
  }
};

Tensor scatter_vmap(const Scatter& op, const VmapLevel& level, const SymInt& count) {
  const Examples examples(op, check(op).dim, level, count);
  return examples.wrapped(
      call(Scatter{examples.src, examples.dim, examples.index, examples.bins, op.reduce}), level,
      count, op.bins);
}

TensorPair scatter_arg_vmap(const ScatterArg& op, const VmapLevel& level, const SymInt& count) {
  const int64_t dim = check(op).dim;
  const Examples examples(op, dim, level, count);
  const auto [out, arg] =
      call(ScatterArg{examples.src, examples.dim, examples.index, examples.bins, op.reduce});
  // Positions of all examples become positions of each.
  const at::Scalar entries(op.src.sym_size(dim).max(1));
  const Tensor positions = examples.folds ? at::where(arg.lt(0), arg, arg.remainder(entries)) : arg;
  return {examples.wrapped(out, level, count, op.bins),
          examples.wrapped(positions, level, count, op.bins)};
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<Scatter, Cpu<on_cpu<Scatter>>, Meta<KernelOf<Scatter>(on_meta)>, Vmap<scatter_vmap>>(
      m);
  register_op<ScatterArg, Cpu<on_cpu<ScatterArg>>, Meta<KernelOf<ScatterArg>(on_meta)>,
              Vmap<scatter_arg_vmap>>(m);
}

}  // namespace
}  // namespace gpuopt::scatter
