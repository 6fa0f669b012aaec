// The graph writers, one per family file of this folder.
#pragma once

#include "model/builder.h"

namespace ridge::model {

void WriteLlama(Builder& b);
void WriteQwen2(Builder& b);
void WriteQwen3(Builder& b);
void WriteQwen3Moe(Builder& b);
void WriteGemma3(Builder& b);
void WriteQwen35(Builder& b);
void WriteBert(Builder& b);

}  // namespace ridge::model
