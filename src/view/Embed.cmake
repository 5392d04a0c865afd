# Makes a C++ source of text files, so that the page needs nothing beside the program:
# cmake -DOUTPUT=file.cc -DFOLDER=folder -P Embed.cmake. See page_assets.h.
function(embed variable)
  set(text "")
  foreach(name ${ARGN})
    file(READ ${FOLDER}/${name} part)
    string(APPEND text "${part}")
  endforeach()
  set(source "${source}const std::string_view ${variable} = R\"qkv_asset(${text})qkv_asset\";\n" PARENT_SCOPE)
endfunction()

set(source "// Made by Embed.cmake from the files of src/view.\n#include \"view/page_assets.h\"\n\n")
string(APPEND source "namespace qkv::view {\n\n")
embed(kPageHtml page.html)
embed(kPageStyle page.css)
embed(kPageScript page_data.js page_draw.js page.js)
embed(kExplainHtml explain.html)
embed(kExplainStyle explain.css)
file(WRITE ${OUTPUT} "${source}\n}  // namespace qkv::view\n")
