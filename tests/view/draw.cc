// Draws a golden capture, to look at: draw FOLDER NAME TOKEN [FILE...]; without FILE in the terminal.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "qkv/error.h"
#include "qkv/view.h"
#include "sample.h"

int main(int argc, char** argv) try {
  if (argc < 4) return std::cerr << "usage: draw FOLDER NAME TOKEN|-|all [FILE...]\n", 2;
  const qkv::ModelCapture capture = qkv::test::ReadCapture(argv[1], argv[2]);
  qkv::TerminalOptions options;
  options.text = qkv::test::ReadText(argv[1], argv[2]);
  for (size_t i = 0; i < capture.labels.size(); ++i)
    if (capture.labels[i] == argv[3]) options.focus.push_back(static_cast<int64_t>(i));
  options.color = std::getenv("NO_COLOR") == nullptr;
  if (argc == 4) std::cout << qkv::TerminalView(capture, options);
  for (int i = 4; i < argc; ++i) {
    const std::string file = argv[i];
    if (file.ends_with(".html"))
      std::ofstream(file) << qkv::Page(capture, options);
    else
      std::cout << qkv::WriteFigure(capture, options, file);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
