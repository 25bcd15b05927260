// The namespace torch.ops.gpuopt. Each family of operators adds its operators with
// TORCH_LIBRARY_FRAGMENT.
#include <torch/library.h>

TORCH_LIBRARY(gpuopt, m) {}
