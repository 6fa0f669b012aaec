#include "hub/hub.h"

namespace ridge::hub {

Result<Entry> Pull(const std::string& model, const PullOptions&) {
  return Fail(Code::kUnsupported, "pulling models is not built yet").Where(model);
}

}  // namespace ridge::hub
