// GET /health: the process answers and the engine makes progress. GET /ready: requests are taken.
#include <chrono>

#include "server/api_error.h"
#include "server/routes.h"

namespace ridge::server {

Reply Health(const Context& context, const Request&) {
  if (!context.loaded()) return JsonReply({{"status", "loading"}});
  if (context.service == nullptr) return JsonReply({{"status", "ok"}});
  const engine::EngineStats stats = context.service->Stats();
  const auto now = engine::Clock::now();
  const double stalled_s =
      stats.no_progress_since ? std::chrono::duration<double>(now - *stats.no_progress_since).count() : 0;
  Json body = {{"status", "ok"}, {"running", stats.running}, {"waiting", stats.waiting}};
  if (stalled_s <= context.stall_s) return JsonReply(body);
  body["status"] = "stalled";
  body["stalled_s"] = stalled_s;
  body["in_a_step"] = stats.stepping;
  Reply reply = JsonReply(body);
  reply.response.status = 503;
  return reply;
}

Reply Ready(const Context&, const Request&) { return JsonReply({{"status", "ready"}}); }

}  // namespace ridge::server
