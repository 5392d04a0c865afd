// How models that answer expect a question to be written.
#include <string>

#include "qkv/error.h"
#include "qkv/generate.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

bool Holds(const std::string& text, const char* mark) { return text.find(mark) != std::string::npos; }

enum class Format { kChatMl, kLlama3, kMistral };

// Templates are programs; these are known by the marks that no other kind has.
Format FormatOf(const ModelInfo& model) {
  const std::string& program = model.chat_template;
  if (program.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the model has no chat template: it continues texts only", model.name);
  }
  if (Holds(program, "<|im_start|>") && Holds(program, "<|im_end|>")) return Format::kChatMl;
  if (Holds(program, "<|start_header_id|>") && Holds(program, "<|eot_id|>")) return Format::kLlama3;
  if (Holds(program, "[INST]") && Holds(program, "[/INST]")) return Format::kMistral;
  throw Error(ErrorCode::kInvalidArgument, "unsupported chat template", model.name, "ChatML, Llama 3 or Mistral",
              "'" + Printable(program, 80) + "'");
}

}  // namespace

ChatPrompt MakeChatPrompt(const ModelInfo& model, std::string_view question) {
  const std::string text(question);
  switch (FormatOf(model)) {
    case Format::kChatMl:
      return {"<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"};
    case Format::kLlama3:
      return {"<|start_header_id|>user<|end_header_id|>\n\n" + text +
                  "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
              "<|eot_id|>"};
    case Format::kMistral: return {"[INST] " + text + " [/INST]", "</s>"};
  }
  return {};
}

}  // namespace qkv
