// gpuopt_ladder::cumsum: schema and steps.
#include "binding/ladder.h"
#include "scan/ladder/scan_ladder.h"

namespace gpuopt::scan {
namespace {

const RegisterLadder steps(kLadder, "cumsum(Tensor self, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::scan
