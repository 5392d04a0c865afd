// Pictures of a ModelCapture: in the terminal, as a figure (PNG, SVG, PDF), as one offline HTML page.
// Text is shown literally, whatever it holds. The same capture gives the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "qkv/capture.h"
#include "qkv/explanation.h"
#include "qkv/export.h"

namespace qkv {

struct ViewOptions {
  std::string text;               // the sentence, for titles
  std::vector<int64_t> focus;     // the token indexes that the user asked about; empty: none in particular
  bool skip_first = false;        // leave the first token out as a key and scale the rest to sum 1
};

struct TerminalOptions : ViewOptions {
  bool color = false;             // ANSI true colour
  int width = 80;                 // columns; fewer than 48 count as 48
  int strongest = 8;              // how many heads to list
};

// The strip of the sentence shaded by weight for each token in focus, then the strongest heads
// ("layer 5 head 11: chicken 0.71 ..."). Without a focus: the strongest heads of the whole text.
QKV_API std::string TerminalView(const ModelCapture& capture, const TerminalOptions& options);

// Two columns of tokens with lines as dark as the weights, an overview of the heads, and the heat map. The format
// follows the file's ending (.png .svg .pdf). Returns a line of warning where no installed font has a character
// of the text, else nothing. Error{kInvalidArgument} for another ending, kIo when it cannot be written: then
// no part of it is left behind.
QKV_API std::string WriteFigure(const ModelCapture& capture, const ViewOptions& options, const std::filesystem::path& file);

// One self-contained file: the heat map of every captured head, a layer and head picker, hover.
// Bounded in size, with a visible notice where something was left out.
QKV_API std::string Page(const ModelCapture& capture, const ViewOptions& options);

// Each step's formula, shapes, numbers and, worked out, one element of the marked row: for the terminal (uses text,
// color and width of the options), and as one self-contained HTML page with formulas in MathML. Large tensors are
// shown in part.
QKV_API std::string TerminalExplanation(const Explanation& explanation, const TerminalOptions& options);
QKV_API std::string ExplanationPage(const Explanation& explanation, const std::string& text);

}  // namespace qkv
