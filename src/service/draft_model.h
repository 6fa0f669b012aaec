// Whether one model can draft for another.
//
//   RIDGE_RETURN_IF_ERROR(CheckDraftModel(target, draft));
//
// Both must read the same tokens: equal ids are equal texts. One vocabulary may be longer than the other by what pads it; those tokens are not drafted.
#pragma once

#include "base/result.h"
#include "model/model.h"

namespace ridge::service {

// Errors: kUnsupported for a model without a token's logits (an encoder) or with recurrent state, kInvalidArgument for another vocabulary. Each names
// the files, and of two vocabularies where they differ.
Status CheckDraftModel(const model::Model& target, const model::Model& draft);

}  // namespace ridge::service
