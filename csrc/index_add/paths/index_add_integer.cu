// gpuopt::index_add of integers and booleans.
#include "index_add/paths/index_add_instances.cuh"

namespace gpuopt::index_add {

GPUOPT_INDEX_ADD(Bool)
GPUOPT_INDEX_ADD(uint8_t)
GPUOPT_INDEX_ADD(uint16_t)
GPUOPT_INDEX_ADD(uint32_t)
GPUOPT_INDEX_ADD(uint64_t)

}  // namespace gpuopt::index_add
