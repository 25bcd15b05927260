// The gpuopt namespace. Each room adds its operators with TORCH_LIBRARY_FRAGMENT.
#include <torch/library.h>

TORCH_LIBRARY(gpuopt, m) {}
