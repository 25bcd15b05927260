// gather_rows() for each width of access.
#include "index_select/index_select.cuh"

namespace gpuopt::index_select {

cudaError_t gather_rows(const Gather& gather, cudaStream_t stream) {
  switch (access_bytes(gather)) {
    case 16:
      return launch_gather<uint4>(gather, stream);
    case 8:
      return launch_gather<uint2>(gather, stream);
    case 4:
      return launch_gather<uint32_t>(gather, stream);
    case 2:
      return launch_gather<uint16_t>(gather, stream);
    default:
      return launch_gather<uint8_t>(gather, stream);
  }
}

}  // namespace gpuopt::index_select
