// C entry points to the emulated launchers of pad, for test_pad.py.
#include <algorithm>
#include <vector>

#include "pad/pad.h"

using namespace gpuopt;
using namespace gpuopt::pad;

namespace {

// `dims` has the padded size, the size, `before` and the stride of each dimension, innermost first.
Problem problem_of(int mode, int64_t item, uint64_t in, uint64_t out, int num_dims,
                   const int64_t* dims) {
  Problem problem;
  problem.mode = static_cast<Mode>(mode);
  problem.item = item;
  problem.in = reinterpret_cast<const void*>(in);
  problem.out = reinterpret_cast<void*>(out);
  problem.num_dims = num_dims;
  for (int d = 0; d < num_dims; ++d) {
    problem.dims[d] = {dims[4 * d], dims[4 * d + 1], dims[4 * d + 2], dims[4 * d + 3]};
  }
  return problem;
}

int run(const std::optional<CopyPlan>& plan) {
  if (!plan.has_value()) return -1;
  return pad::copy(*plan, nullptr) == cudaSuccess ? plan->args.runs * 10 + plan->args.outers : -2;
}

}  // namespace

// Returns ten times the runs of a row and the outer dimensions, or -1 if there is no plan.
extern "C" int copy_padded(int mode, int64_t item, uint64_t in, uint64_t out, int num_dims,
                           const int64_t* dims, const uint32_t* fill) {
  Problem problem = problem_of(mode, item, in, out, num_dims, dims);
  std::copy_n(fill, 4, problem.fill.words);
  return run(make_plan(problem));
}

// `strides` has the strides of each source, one source after another.
extern "C" int copy_joined(int64_t item, uint64_t out, int count, const uint64_t* data,
                           const int64_t* rows, int outers, const int64_t* sizes,
                           const int64_t* strides) {
  std::vector<Source> sources(count);
  for (int s = 0; s < count; ++s) {
    sources[s].data = reinterpret_cast<const void*>(data[s]);
    sources[s].row = rows[s];
    std::copy_n(strides + s * outers, outers, sources[s].strides);
  }
  return run(make_plan(sources, std::span(sizes, outers), item, reinterpret_cast<void*>(out)));
}

// Whether a concatenation of two dense sources has pieces of many rows. Nothing is read.
extern "C" bool has_dense_pieces(int64_t item, int64_t row, int64_t rows) {
  Source source;
  source.data = reinterpret_cast<const void*>(4096);
  source.row = row;
  source.strides[0] = row;
  const Source sources[] = {source, source};
  return make_plan(sources, std::span(&rows, 1), item, nullptr).value().is_dense;
}

// Returns the dimensions after merging, or -1 if there is no plan.
extern "C" int sum_padded(int mode, int dtype, uint64_t grad, uint64_t out, int num_dims,
                          const int64_t* dims) {
  const auto type = static_cast<DType>(dtype);
  const auto plan = make_sum_plan(
      problem_of(mode, static_cast<int64_t>(size_of(type)), grad, out, num_dims, dims));
  if (!plan.has_value()) return -1;
  return pad::sum(*plan, type, nullptr) == cudaSuccess ? num_dims : -2;
}
