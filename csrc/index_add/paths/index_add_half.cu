// gpuopt::index_add of float16 and bfloat16.
#include "index_add/paths/index_add_instances.cuh"

namespace gpuopt::index_add {

GPUOPT_INDEX_ADD(__half)
GPUOPT_INDEX_ADD(__nv_bfloat16)

}  // namespace gpuopt::index_add
