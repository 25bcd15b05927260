// The schemas, CPU kernels and Meta kernels of attention over a sparse matrix, and its rules for
// torch.vmap and autocast.
#include "binding/autocast.h"
#include "graph_attention/graph_attention_formula.h"

namespace gpuopt::graph_attention {
namespace {

GraphAttention::Result attention_meta(const GraphAttention& op) {
  const Shape shape = check_attention(op);
  at::SymDimVector sizes(op.value.sym_sizes());
  sizes[0] = shape.rows;
  const auto options = op.value.options().dtype(compute_type(op.value));
  return {at::empty_symint(sizes, op.value.options()),
          at::empty_symint({shape.rows, op.value.sym_size(1)}, options)};
}

GraphAttentionBackward::Result backward_meta(const GraphAttentionBackward& op) {
  const Shape shape = check_attention(op);
  const auto of_entries = [&] {
    return at::empty_symint({shape.entries, op.value.sym_size(1)}, op.value.options());
  };
  return {at::empty_symint(op.left.sym_sizes(), op.left.options()), of_entries(), of_entries()};
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  // A composition of operators that have batching rules.
  register_op<GraphAttention, Cpu<composed>, Meta<attention_meta>, Batched<composed>,
              Autocast<lower_precision, at::kCUDA, at::kCPU>>(m);
  register_op<GraphAttentionBackward, Cpu<composed_backward>, Meta<backward_meta>>(m);
}

}  // namespace
}  // namespace gpuopt::graph_attention
