// GET /v1/models: the one model that is served.
#include "server/routes.h"

namespace ridge::server {

Reply Models(const Context& context, const Request&) {
  const service::Runtime& runtime = context.runtime();
  const Json model = {{"id", context.model_id},
                      {"object", "model"},
                      {"created", context.created},
                      {"owned_by", "ridge"},
                      {"max_model_len", runtime.context_tokens()},
                      {"meta",
                       {{"architecture", runtime.model().config().architecture},
                        {"n_vocab", runtime.model().graph().vocab()},
                        {"n_ctx", runtime.context_tokens()},
                        {"n_ctx_train", runtime.model().config().context_tokens},
                        {"size", runtime.model().file().size_bytes()},
                        {"embeddings", context.embedder != nullptr},
                        {"chat_template", context.service != nullptr && context.service->has_template()}}}};
  return JsonReply({{"object", "list"}, {"data", Json::array({model})}});
}

}  // namespace ridge::server
