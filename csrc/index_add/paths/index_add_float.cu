// gpuopt::index_add of float32 and float64.
#include "index_add/paths/index_add_instances.cuh"

namespace gpuopt::index_add {

GPUOPT_INDEX_ADD(float)
GPUOPT_INDEX_ADD(double)

}  // namespace gpuopt::index_add
