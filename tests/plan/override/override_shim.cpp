// C entry points to the decisions of torch_ops.override, for test_override_policy.py.
#include "override/policy.h"
#include "transpose/transpose_copy.h"

using namespace gpuopt;
using namespace gpuopt::overriding;

namespace {

std::span<const int64_t> span_of(const int64_t* values, int64_t count) {
  return {values, static_cast<size_t>(count)};
}

Dims dims_of(int64_t rank, const int64_t* sizes, const int64_t* a, const int64_t* b) {
  return merged_dims(span_of(sizes, rank), span_of(a, rank), span_of(b, rank)).value_or(Dims());
}

int64_t number_of(Reason reason) { return static_cast<int64_t>(reason); }

}  // namespace

extern "C" {

int64_t reduce_reason(int64_t rank, const int64_t* sizes, const int64_t* strides, int64_t reduced,
                      int64_t item) {
  return number_of(policy::reduce(span_of(sizes, rank), span_of(strides, rank),
                                  static_cast<uint64_t>(reduced), item));
}

int64_t mul_reason(int64_t rank, const int64_t* sizes, const int64_t* a, const int64_t* b,
                   int64_t bytes) {
  return number_of(policy::mul(dims_of(rank, sizes, a, b), bytes));
}

int64_t copy_reason(int64_t rank, const int64_t* sizes, const int64_t* out, const int64_t* in,
                    int64_t item, int64_t address) {
  auto problem = transpose::as_transposition(dims_of(rank, sizes, out, in));
  if (!problem.has_value()) return number_of(Reason::kLayout);
  problem->item = item;
  problem->in = reinterpret_cast<const void*>(address);
  return number_of(policy::copy(*problem));
}

// Writes rows, columns, row stride, and sizes and strides of up to four batch dimensions, innermost
// first. Returns the number of batch dimensions, or -1 if the copy is no transposition.
int64_t transposition(int64_t rank, const int64_t* sizes, const int64_t* out, const int64_t* in,
                      int64_t* fields) {
  const auto problem = transpose::as_transposition(dims_of(rank, sizes, out, in));
  if (!problem.has_value()) return -1;
  fields[0] = problem->rows;
  fields[1] = problem->columns;
  fields[2] = problem->row_stride;
  for (int d = 0; d < problem->batch_dims; ++d) {
    fields[3 + d] = problem->batch_sizes[d];
    fields[7 + d] = problem->batch_strides[d];
  }
  return problem->batch_dims;
}

int64_t pad_reason(int64_t bytes) { return number_of(policy::pad(bytes)); }

bool adds_bags(int64_t entries, int64_t rows, int64_t row_bytes) {
  return policy::adds_bags(entries, rows, row_bytes);
}

int64_t bags_reason(int64_t entries, int64_t row_bytes) {
  return number_of(policy::embedding_bag(entries, row_bytes));
}

int64_t border_reason(int64_t bytes) { return number_of(policy::border(bytes)); }

int64_t border_backward_reason(int64_t bytes, int64_t dims, int64_t item) {
  return number_of(policy::border_backward(bytes, dims, item));
}

int64_t cat_reason(int64_t bytes, bool is_dense, int64_t tensors, int64_t narrowest) {
  return number_of(policy::cat(bytes, is_dense, static_cast<size_t>(tensors), narrowest));
}

int64_t upsample_reason(bool backward, bool channels_last, int64_t images, int64_t bytes) {
  return number_of(backward ? policy::upsample_backward(false, channels_last, images, bytes)
                            : policy::upsample(false, channels_last, bytes));
}

int64_t index_add_reason(const policy::Addition& add, bool deterministic) {
  return number_of(policy::index_add(add, deterministic));
}

bool index_add_in_graph(const policy::Addition& add, bool bfloat16) {
  return policy::index_add_in_graph(add, add.item == 2, bfloat16, /*deterministic=*/false);
}

bool sums_in_float32(const policy::Addition& add) { return policy::sums_in_float32(add); }
bool is_count(const policy::Addition& add) { return add.is_count(); }

int64_t index_select_reason(int64_t entries, int64_t row_bytes) {
  return number_of(policy::index_select(entries, row_bytes));
}

int64_t cumsum_reason(int64_t values, int64_t length, int64_t item) {
  return number_of(policy::cumsum(values, length, item));
}

int64_t norm_reason(int64_t count, int64_t length, int64_t item) {
  return number_of(policy::norm({count, length, item}));
}

int64_t norm_backward_reason(int64_t count, int64_t length, int64_t item, bool wants_both) {
  return number_of(policy::norm_backward({count, length, item}, wants_both));
}

int64_t group_norm_reason(const policy::ChannelNorm& norm) {
  return number_of(policy::group_norm(norm));
}

int64_t batch_norm_reason(const policy::ChannelNorm& norm, bool is_backward) {
  return number_of(policy::batch_norm(norm, is_backward));
}

int64_t batch_norm_evaluation_reason(const policy::ChannelNorm& norm) {
  return number_of(policy::batch_norm_evaluation(norm));
}

int64_t cudnn_batch_norm_reason(const policy::ChannelNorm& norm) {
  return number_of(policy::cudnn_batch_norm(norm));
}

int64_t segment_reduce_reason(int64_t features, int64_t results, int64_t bytes) {
  return number_of(policy::segment_reduce(features, results, bytes));
}

int64_t segment_reduce_backward_reason(bool is_extremum, int64_t features, int64_t results,
                                       int64_t bytes) {
  return number_of(policy::segment_reduce_backward(is_extremum, features, results, bytes));
}

int64_t scatter_reduce_reason(const policy::Addition& add, int64_t features) {
  return number_of(policy::scatter_reduce(add, features));
}

int64_t sparse_sum_reason(int64_t entries, int64_t features, int64_t item) {
  return number_of(policy::sparse_sum(entries, features, item));
}

int64_t sparse_product_reason(int64_t entries, int64_t features, int64_t item) {
  return number_of(policy::sparse_product(entries, features, item));
}

}  // extern "C"
