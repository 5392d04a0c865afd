#include "qkv/view.h"
#include "view/figure_draw.h"
#include "view/paper.h"

namespace qkv {

std::string WriteFigure(const ModelCapture& capture, const ViewOptions& options,
                        const std::filesystem::path& file) {
  view::CheckPaper(file);
  const view::Rows rows(capture, options);
  const view::Scene scene = view::SceneOf(rows, options);
  return view::WritePaper([&](view::Pen& pen) { return view::DrawScene(pen, rows, scene); }, file);
}

}  // namespace qkv
