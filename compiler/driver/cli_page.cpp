// `inspect --html`: the report, the graphs and the sources as data inside one page, whose style and scripts are the files
// of compiler/driver/page/.
#include <algorithm>
#include <fstream>

#include "codegen/cuda/embedded.h"
#include "compiler/driver/cli_inspection.h"
#include "passes/pass_manager.h"

namespace ingot::cli {

/// Style, scripts and frame, by the name of the file. Written by cmake/embed.cmake.
const std::vector<EmbeddedFile>& page_table();

namespace {

using nlohmann::json;

std::string_view page_file(std::string_view name) {
  for (const EmbeddedFile& f : page_table())
    if (f.name == name) return f.text;
  INGOT_CHECK(false, "no page file");
}

/// JSON that can stand in a <script> element whatever its strings hold: without '<' nothing ends the element or opens a
/// comment.
std::string inert(const json& j) {
  std::string text;
  for (char c : json_text(j)) {
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

json sources_of(const Inspection& i) {
  json all = json::array();
  for (const PartView& p : i.parts)
    for (const KernelView& k : p.kernels) {
      json forms = json::array();
      for (const KernelForm& f : k.forms) forms.push_back(f.source);
      all.push_back(forms);
    }
  return all;
}

/// The page's frame with its marks, {{style.css}} and so on, replaced; {{data}} is the data.
std::string fill(std::string_view frame, const std::string& data) {
  std::string page;
  for (size_t at = 0; at < frame.size();) {
    const size_t open = frame.find("{{", at);
    page += frame.substr(at, open == std::string_view::npos ? open : open - at);
    if (open == std::string_view::npos) break;
    const size_t close = frame.find("}}", open);
    const std::string_view name = frame.substr(open + 2, close - open - 2);
    page += name == "data" ? std::string_view(data) : page_file(name);
    at = close + 2;
  }
  return page;
}

}  // namespace

Status write_page(const Inspection& i, const std::string& path) {
  const OnnxModel model = INGOT_TRY(read_model(i.model));
  CompileOptions import = i.options;
  import.until = pipeline()[0].name;
  import.dump_dir.clear();
  const Compilation imported = INGOT_TRY(lower_model(model, import));
  json data = report_json(i);
  data["graphs"] = graphs_json(i, outline_of(model), imported.graph);
  data["sources"] = sources_of(i);
  std::ofstream out(path, std::ios::binary);
  out << fill(page_file("page/frame.html"), inert(data));
  out.close();
  if (!out) return make_error(ErrorKind::Io, path + " cannot be written");
  return {};
}

}  // namespace ingot::cli
