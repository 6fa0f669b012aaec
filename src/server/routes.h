// The routes: one file each under routes/, one line each in the table of routes.cc.
//
//   const Reply reply = Dispatch(context, request);
//
// Guarantees: every request gets an answer: 404 for an unknown path, 405 with Allow for a method that the path does not have. HEAD is GET without the
// body. No exception comes out. Thread-safe; never waits for the engine.
#pragma once

#include "server/context.h"
#include "server/http.h"

namespace ridge::server {

using Handler = Reply (*)(const Context& context, const Request& request);

Reply ChatCompletions(const Context& context, const Request& request);
Reply Completions(const Context& context, const Request& request);
Reply Detokenize(const Context& context, const Request& request);
Reply Embeddings(const Context& context, const Request& request);
Reply Health(const Context& context, const Request& request);
Reply Metrics(const Context& context, const Request& request);
Reply Models(const Context& context, const Request& request);
Reply Ready(const Context& context, const Request& request);
Reply Tokenize(const Context& context, const Request& request);

// The route computes while it is called: it belongs on a thread that may be kept.
bool Computes(const Request& request);

Reply Dispatch(const Context& context, const Request& request);

}  // namespace ridge::server
