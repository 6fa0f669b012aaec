/* The same in C: completes a text as it comes.
 *
 *   ridge_complete_c MODEL.gguf "The capital of France is" */
#include <stdio.h>

#include "ridge/ridge_c.h"

static int print_event(void* user_data, const ridge_event* event) {
  (void)user_data;
  return fwrite(event->text, 1, event->text_bytes, stdout) == event->text_bytes ? 0 : 1; /* other than 0 cancels */
}

static int report(ridge_error* error) {
  fprintf(stderr, "error: %s\n", error != NULL ? error->message : "out of memory");
  ridge_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  ridge_load_options options = ridge_load_options_default();
  ridge_request request = ridge_request_default();
  ridge_model* model = NULL;
  ridge_stream* stream = NULL;
  ridge_error* error = NULL;
  ridge_receipt receipt;
  int status = 0;
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL.gguf TEXT\n", argv[0]);
    return 2;
  }
  options.path = argv[1];
  request.prompt = argv[2];
  request.max_tokens = 24;
  request.sampling.temperature = 0;
  if (ridge_model_load(&options, &model, &error) != RIDGE_OK) return report(error);
  if (ridge_submit(model, &request, &stream, &error) != RIDGE_OK ||
      ridge_stream_run(stream, print_event, NULL, &error) != RIDGE_OK ||
      ridge_stream_receipt(stream, &receipt, &error) != RIDGE_OK) {
    status = report(error);
  } else {
    printf("\n");
    fprintf(stderr, "%lld tokens, the first after %.1f ms\n", (long long)receipt.generated_tokens, receipt.ttft_ms);
  }
  ridge_stream_free(stream);
  ridge_model_free(model);
  return status;
}
