#pragma once

namespace gpuopt {

// What a plan must know of the device.
struct Device {
  int sms = 1;
  int shared_bytes = 48 << 10;  // of shared memory that a block may ask for
};

}  // namespace gpuopt
