// gpuopt_ladder::copy_in_flight: schema.
#include "binding/ladder.h"

namespace gpuopt::in_flight {
namespace {

const RegisterLadder copy_in_flight(
    "copy_in_flight(Tensor self, int access_bytes, int loads, int warps) -> Tensor");

}  // namespace
}  // namespace gpuopt::in_flight
