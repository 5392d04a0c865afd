// How a lesson's picture is made: `PROGRAM en|zh FILE`.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "view/paper.h"
#include "view/pen.h"

namespace lesson {

// Draws with the words of the language asked for, and gives the program's exit status. draw(pen, words): the
// height.
template <class Words>
int WritePicture(int argc, char** argv, const Words& english, const Words& chinese,
                 double (*draw)(qkv::view::Pen&, const Words&)) {
  const std::string_view language = argc == 3 ? argv[1] : "";
  if (language != "en" && language != "zh") {
    std::fprintf(stderr, "usage: %s en|zh FILE\n", argv[0]);
    return 2;
  }
  const Words& words = language == "en" ? english : chinese;
  try {
    const std::string warning =
        qkv::view::WritePaper([&](qkv::view::Pen& pen) { return draw(pen, words); }, argv[2]);
    if (!warning.empty()) std::fprintf(stderr, "%s\n", warning.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace lesson
