// All of Tessera's public interface.
#pragma once

#include "tessera/dtype.h"
#include "tessera/error.h"
#include "tessera/session.h"
#include "tessera/tensor.h"

namespace tessera {

// "0.1.0"
const char* version();

}  // namespace tessera
