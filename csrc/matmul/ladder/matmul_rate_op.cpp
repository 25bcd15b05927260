// gpuopt_ladder::unit_rate: schema.
#include "binding/ladder.h"

namespace gpuopt::matmul {
namespace {

const RegisterLadder unit_rate("unit_rate(Tensor self, str unit, int iterations) -> Tensor");

}  // namespace
}  // namespace gpuopt::matmul
