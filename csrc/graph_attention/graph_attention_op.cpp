// The schemas, CPU kernels and Meta kernels of attention over a sparse matrix, and its rules for
// torch.vmap and autocast.
#include "binding/autocast.h"
#include "graph_attention/graph_attention_formula.h"

namespace gpuopt::graph_attention {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<GraphAttention, GraphAttentionBackward>(m); }

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<GraphAttention, composed>(m);
  impl<GraphAttentionBackward, composed_backward>(m);
}

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

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<GraphAttention, attention_meta>(m);
  impl<GraphAttentionBackward, backward_meta>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<GraphAttention, composed>(m);  // of operators with batching rules
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl_autocast<GraphAttention, c10::DeviceType::CUDA, lower_precision>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  impl_autocast<GraphAttention, c10::DeviceType::CPU, lower_precision>(m);
}

}  // namespace
}  // namespace gpuopt::graph_attention
